export const words = {
  en: {
    title: "Home", newJob: "New job", running: "Running", waiting: "Waiting", failures: "Failed lately", done: "Done lately", free: "Free now", limits: "Quota and budget",
    nothingRuns: "Nothing of yours runs.", nothingWaits: "Nothing of yours waits.", nothingFailed: "Nothing of yours failed lately.", allJobs: "All jobs", allMine: "All of mine",
    left: (time: string) => `about ${time} left`, step: (step: string) => `step ${step}`, gpus: (count: string) => (count === "1" ? "1 GPU" : `${count} GPUs`), soFar: (cost: string) => `${cost} so far`,
    place: (place: string, queue: string) => `${place} in ${queue}`, next: (queue: string) => `next in ${queue}`, expected: "should start", why: "Why",
    free_: { gpus: "GPUs", cpus: "CPUs", memory: "Memory" }, ofAll: (total: string) => `of ${total}`, notReady: (count: string) => `${count} nodes are not ready`,
    quota: { gpus: "GPUs of the project", cpus: "CPUs of the project", memory: "Memory of the project" }, budget: (name: string, period: string) => `Budget of ${name} (${period})`, periods: { month: "this month", total: "in all" },
    storage: "Storage", unlimited: "No quota and no budget is set.", welcome: "Three ways to begin", welcomeHint: "Each is one command. Two of them run from here.",
    cards: {
      demo: { title: "See one run", text: "A small network learns two crescents, in plain Python, for about 15 seconds. Its curve draws itself.", button: "Run it now" },
      rates: { title: "Compare three", text: "The same with three learning rates, side by side: which one was too bold?", button: "Run all three" },
      own: { title: "Run your own", text: "Your script as it is, no change, no YAML: what it prints as key=value becomes a curve.", button: "Open the form" },
    },
    insecure: "Code can be sent from here only over https or from this machine: use the command.",
    show: (name: string) => `Open ${name}`, percent: (used: string, all: string) => `${used} of ${all}`,
  },
  zh: {
    title: "首页", newJob: "新建任务", running: "正在运行", waiting: "等待中", failures: "最近失败", done: "最近完成", free: "当前空闲", limits: "配额与预算",
    nothingRuns: "您没有正在运行的任务。", nothingWaits: "您没有等待中的任务。", nothingFailed: "您最近没有失败的任务。", allJobs: "全部任务", allMine: "我的全部任务",
    left: (time: string) => `大约还需 ${time}`, step: (step: string) => `第 ${step} 步`, gpus: (count: string) => `${count} 个 GPU`, soFar: (cost: string) => `目前 ${cost}`,
    place: (place: string, queue: string) => `队列 ${queue} 第 ${place} 位`, next: (queue: string) => `队列 ${queue} 的下一个`, expected: "预计开始", why: "原因",
    free_: { gpus: "GPU", cpus: "CPU", memory: "内存" }, ofAll: (total: string) => `/ ${total}`, notReady: (count: string) => `${count} 个节点未就绪`,
    quota: { gpus: "项目 GPU", cpus: "项目 CPU", memory: "项目内存" }, budget: (name: string, period: string) => `${name} 的预算（${period}）`, periods: { month: "本月", total: "总计" },
    storage: "存储", unlimited: "没有设置配额和预算。", welcome: "三种开始方式", welcomeHint: "每种都只需一条命令，其中两种可以在这里直接运行。",
    cards: {
      demo: { title: "先看一个任务", text: "用纯 Python 训练一个小网络区分两弯新月，大约 15 秒，曲线会自己画出来。", button: "立即运行" },
      rates: { title: "对比三个任务", text: "同一个网络用三种学习率并排运行：哪一个太大了？", button: "运行三个" },
      own: { title: "运行您自己的脚本", text: "脚本原样运行，不用改动，也不用 YAML：以 key=value 打印的内容会成为曲线。", button: "打开表单" },
    },
    insecure: "只有 https 页面或本机页面才能发送代码，请使用命令。",
    show: (name: string) => `打开 ${name}`, percent: (used: string, all: string) => `${used} / ${all}`,
  },
};
