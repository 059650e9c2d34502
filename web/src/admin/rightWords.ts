/** What each right lets one do, in a few words. */
import type { Schema } from "../api/client";

type Said = Record<Exclude<Schema["Right"], "public" | "worker" | "run">, string>;

const en: Said = {
  "job.read": "look at jobs, logs and metrics", "job.write": "submit, and change one's own jobs", "job.write-any": "change everybody's jobs",
  "job.debug": "look into one's own running jobs", "job.debug-any": "look into everybody's running jobs", "node.read": "see nodes",
  "queue.read": "see queues", "queue.write": "change queues and the order in them", "quota.read": "see quotas", "quota.write": "change quotas",
  "limit.read": "see limits", "limit.write": "change limits", "feed.read": "follow what happens", "bundle.write": "upload code",
  "model.read": "look at models", "model.write": "register models, move aliases", "model.remove": "remove one's own models", "model.remove-any": "remove everybody's models",
  "track.read": "look at runs", "track.write": "make runs and log to them", "secret.read": "see the names of secrets", "secret.write": "set secrets of the project",
  "self.read": "ask who one is", "project.read": "see one's projects", "project.write": "change members and service accounts", "project.admin": "make and remove projects",
  "user.read": "see all users", "user.write": "make, change and remove users", "key.own": "one's own keys, tokens, password",
  "usage.read": "see the project's usage", "usage.read-all": "see everybody's usage", "price.write": "set prices and budgets",
  "audit.read": "read the project's audit log", "audit.read-all": "read the server's audit log", "server.read": "see the server's state", "server.write": "administer the server",
}; // prettier-ignore

const zh: Said = {
  "job.read": "查看任务、日志和指标", "job.write": "提交任务，修改自己的任务", "job.write-any": "修改所有人的任务",
  "job.debug": "调试自己运行中的任务", "job.debug-any": "调试所有人运行中的任务", "node.read": "查看节点",
  "queue.read": "查看队列", "queue.write": "修改队列及其顺序", "quota.read": "查看配额", "quota.write": "修改配额",
  "limit.read": "查看限额", "limit.write": "修改限额", "feed.read": "跟踪事件", "bundle.write": "上传代码",
  "model.read": "查看模型", "model.write": "注册模型、移动别名", "model.remove": "删除自己的模型", "model.remove-any": "删除所有人的模型",
  "track.read": "查看运行记录", "track.write": "创建并写入运行记录", "secret.read": "查看机密名称", "secret.write": "设置项目机密",
  "self.read": "查询自己的身份", "project.read": "查看所在项目", "project.write": "管理成员和服务账号", "project.admin": "创建和删除项目",
  "user.read": "查看所有用户", "user.write": "创建、修改和删除用户", "key.own": "自己的密钥、令牌和密码",
  "usage.read": "查看项目用量", "usage.read-all": "查看所有用量", "price.write": "设置价格和预算",
  "audit.read": "查看项目审计", "audit.read-all": "查看服务器审计", "server.read": "查看服务器状态", "server.write": "管理服务器",
}; // prettier-ignore

export const rightWords = { en, zh };
