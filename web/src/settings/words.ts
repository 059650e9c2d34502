export const words = {
  en: {
    title: "Settings", look: "How it looks", lookHint: "Kept in this browser.", theme: "Theme", themes: { auto: "As the system", light: "Light", dark: "Dark" }, language: "Language",
    density: "Density", densities: { roomy: "Roomy", compact: "Compact" }, keys: "Keyboard", keysHint: "Keys work unless you are writing in a field.", letters: "Single letters do something",
    lettersHint: "Off: only keys with Ctrl or ⌘ do.", keyList: "Press ? anywhere for the list.",
    password: "Password", passwordHint: "All your sessions and tokens end; this browser stays logged in, access keys stay.", old: "The one there is now", fresh: "New password", again: "Again", change: "Change it", set: "Set it",
    differ: "the two are not the same", changed: "The password was changed. Other sessions and tokens have ended.", none: "You have no password yet: you logged in by a link.",
    sessions: "Where you are logged in", sessionsHint: "Ending one logs that browser out at once.", browser: "Browser", address: "From", seen: "Last seen", expires: "Ends", how: "By", end: "End", endAsk: "That browser is logged out at once.",
    endAll: "End all others", endAllAsk: "Every other browser is logged out at once.", current: "this one", hows: { password: "password", link: "link", oidc: "organisation's login" } as Record<string, string>,
    you: "You", user: "User", role: "Role in the organisation", projectRole: (project: string) => `Role in ${project}`, noRole: "none", actions: "Actions",
  },
  zh: {
    title: "设置", look: "外观", lookHint: "保存在此浏览器中。", theme: "主题", themes: { auto: "跟随系统", light: "浅色", dark: "深色" }, language: "语言",
    density: "密度", densities: { roomy: "宽松", compact: "紧凑" }, keys: "键盘", keysHint: "不在输入框中时快捷键有效。", letters: "启用单字母快捷键",
    lettersHint: "关闭后只有 Ctrl 或 ⌘ 组合键有效。", keyList: "任意页面按 ? 查看列表。",
    password: "密码", passwordHint: "修改后您的所有会话和令牌都会结束；此浏览器保持登录，访问密钥不变。", old: "当前密码", fresh: "新密码", again: "再次输入", change: "修改", set: "设置",
    differ: "两次输入不一致", changed: "密码已修改。其他会话和令牌已结束。", none: "您还没有密码：您是通过链接登录的。",
    sessions: "登录的浏览器", sessionsHint: "结束会话会立即让该浏览器退出登录。", browser: "浏览器", address: "来源", seen: "最近活动", expires: "到期", how: "方式", end: "结束", endAsk: "该浏览器会立即退出登录。",
    endAll: "结束其他全部会话", endAllAsk: "其他所有浏览器会立即退出登录。", current: "当前", hows: { password: "密码", link: "链接", oidc: "组织登录" } as Record<string, string>,
    you: "您", user: "用户", role: "组织角色", projectRole: (project: string) => `在 ${project} 中的角色`, noRole: "无", actions: "操作",
  },
};
