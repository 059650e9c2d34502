// The login page. What a link carries stands behind the # of the address, so that no server, log
// or other site ever sees it; it is taken out of the address at once.
"use strict";

const ZH = {
  known: "您已登录：", open: "打开控制台", leave: "退出登录", log_in: "登录",
  by_link: "使用收到的链接登录此服务器？", user: "用户名", password: "密码",
  choose: "请设置新密码，至少十个字符。", new: "新密码", again: "再次输入", set: "设置",
  with: "登录方式：", first: "还没有密码？请在本机终端运行：", differ: "两次输入不一致",
  project: "，项目 ",
};
const EN = { differ: "the two are not the same", project: ", in project " };

const byId = (id) => document.getElementById(id);
const show = (id, yes = true) => { byId(id).hidden = !yes; };
const tell = (text) => { byId("told").textContent = text; };
const kept = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
const NEXT = "windlass-next";

let words = EN;
const said = [...document.querySelectorAll("[data-words]")].map((each) => [each, each.textContent]);

// In the language that the browser keeps, or its own; the button is for who reads the other.
function speak(language) {
  const zh = language === "zh";
  words = zh ? ZH : EN;
  document.documentElement.lang = zh ? "zh" : "en";
  for (const [each, english] of said) each.textContent = zh ? ZH[each.dataset.words] : english;
  byId("language").textContent = zh ? "English" : "中文";
  byId("language").lang = zh ? "en" : "zh";
}
speak(kept("windlass-language") || (/^zh\b/i.test(navigator.language) ? "zh" : "en"));
byId("language").addEventListener("click", () => {
  const next = document.documentElement.lang === "zh" ? "en" : "zh";
  try { localStorage.setItem("windlass-language", next); } catch { /* it holds for this page */ }
  speak(next);
});
const theme = kept("windlass-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

const carried = new URLSearchParams(location.hash.slice(1));
const asked = new URLSearchParams(location.search).get("next");
const alone = document.querySelector("meta[name=came]").content === "alone";
history.replaceState(null, "", location.pathname);

// Where to go once logged in: a page of this server and nothing else.
function after() {
  const home = new URL(document.baseURI);
  const wanted = asked || sessionStorage.getItem(NEXT) || "./";
  sessionStorage.removeItem(NEXT);
  const next = URL.canParse(wanted, home) ? new URL(wanted, home) : home;
  return next.origin === home.origin && next.pathname.startsWith(home.pathname) ? next.href : home.href;
}

async function call(method, path, body) {
  const answer = await fetch(new URL("api/v1" + path, document.baseURI), {
    method,
    credentials: "same-origin",
    headers: { "X-Wl-Client": "login", ...(body ? { "Content-Type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error ? said.error.message : "the server answered " + answer.status);
  return said;
}

const who = () => call("GET", "/session").catch(() => null);
const enter = () => location.replace(after());
const useLink = async () => {
  await call("POST", "/login/link", { link: carried.get("link") });
  enter();
};

async function look() {
  for (const id of ["known", "by-link", "by-password", "set-password", "by-issuer", "first"]) show(id, false);
  if (carried.get("password")) return show("set-password");
  const me = await who();
  if (carried.get("link")) {
    if (alone && me === null) return useLink();
    return show("by-link");
  }
  if (carried.get("error")) tell(carried.get("error"));
  if (me !== null) {
    if (asked !== null || sessionStorage.getItem(NEXT) !== null) return enter();
    byId("user").textContent = me.user;
    byId("where").textContent = me.project ? words.project + me.project : "";
    return show("known");
  }
  const ways = await call("GET", "/login");
  show("by-password", ways.password);
  show("first", ["127.0.0.1", "localhost", "[::1]"].includes(location.hostname));
  byId("name").focus();
  if (ways.oidc) {
    byId("issuer").textContent = ways.oidc.replace(/^https?:\/\//, "");
    show("by-issuer");
  }
}

async function attempt(what) {
  tell("");
  try {
    await what();
  } catch (error) {
    tell(error.message);
  }
}

byId("use-link").addEventListener("click", () => attempt(useLink));
byId("by-password").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    await call("POST", "/login", { user: byId("name").value.trim(), password: byId("password").value });
    byId("password").value = "";
    enter();
  });
});
byId("set-password").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    if (byId("new").value !== byId("again").value) throw new Error(words.differ);
    await call("POST", "/login/password", { link: carried.get("password"), password: byId("new").value });
    enter();
  });
});
byId("leave").addEventListener("click", () => attempt(async () => {
  await call("POST", "/logout", {});
  await look();
}));
// The issuer sends the browser back to this page: it remembers where it was going.
byId("to-issuer").addEventListener("click", () => sessionStorage.setItem(NEXT, asked || "./"));

// A link that is opened where the page is open already only changes what is behind the #.
addEventListener("hashchange", () => location.reload());

look().catch((error) => tell(error.message));
