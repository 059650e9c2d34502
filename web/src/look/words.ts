export const words = {
  en: {
    copy: "Copy",
    copied: "Copied",
    again: "Try again",
    nextStep: "Next step",
    loading: "Loading",
    states: {
      held: "held", queued: "queued", starting: "starting", running: "running", stopping: "stopping",
      succeeded: "succeeded", failed: "failed", cancelled: "cancelled", paused: "paused",
      pruned: "pruned", waiting: "waiting", done: "done", ready: "ready", lost: "lost", draining: "draining",
      over: "over", launching: "launching", alive: "alive", ending: "ending",
      finished: "finished", stopped: "stopped", pausing: "pausing", unreachable: "unreachable",
    },
  },
  zh: {
    copy: "复制",
    copied: "已复制",
    again: "重试",
    nextStep: "下一步",
    loading: "加载中",
    states: {
      held: "暂缓", queued: "排队中", starting: "启动中", running: "运行中", stopping: "停止中",
      succeeded: "成功", failed: "失败", cancelled: "已取消", paused: "已暂停",
      pruned: "已剪枝", waiting: "等待中", done: "完成", ready: "就绪", lost: "失联", draining: "排空中",
      over: "已结束", launching: "启动中", alive: "存活", ending: "结束中",
      finished: "已完成", stopped: "已停止", pausing: "暂停中", unreachable: "无法连接",
    },
  },
};
