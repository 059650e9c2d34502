export const words = {
  en: {
    typeName: (name: string) => `Type ${name} to confirm`,
    yes: "Yes, do it",
    no: "Keep it",
    cancel: "Cancel",
    cli: "The same in a terminal",
    shownOnce: "Shown now and never again. Copy it to where it is needed.",
    copied: "I have it",
    of: (used: string, total: string) => `${used} of ${total}`,
    more: "Actions",
  },
  zh: {
    typeName: (name: string) => `请输入 ${name} 以确认`,
    yes: "确认",
    no: "取消",
    cancel: "取消",
    cli: "对应的命令行",
    shownOnce: "只显示这一次，请立即复制保存。",
    copied: "已保存",
    of: (used: string, total: string) => `${used} / ${total}`,
    more: "操作",
  },
};
