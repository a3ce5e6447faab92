// Words of the lab in Chinese, beside the English ones, by which lessons and scripts name them. English elsewhere.
let language = "en";

const CHINESE = {
  Step: "走一步", Run: "运行", Halt: "停下", "Wait 1 min": "等一分钟", Undo: "撤销", "Start anew": "重新开始",
  Produce: "写入", Consume: "读取", Kill: "杀掉", Start: "启动", Pause: "暂停", Resume: "恢复", "Cut off": "隔离", Heal: "接通",
  Fetch: "拉取", "Fetch, answer lost": "拉取，答复丢失", "Rules": "规则", "Why?": "为什么？", "at ": "写到 ", " committed transactions only": " 只读已提交的事务",
  Lab: "实验室", "The script of this run": "本次运行的脚本", "Play it": "播放", "Copy a link to this run": "复制本次运行的链接",
  "not committed": "未提交", "last stable offset": "最后稳定偏移量", "high watermark": "高水位", "log end": "日志末端",
  leader: "领导者", follower: "跟随者", down: "停机", "in sync": "同步", paused: "已暂停", "cut off": "已隔离", "the leader": "领导者",
};

// What the tab says of itself: by how it begins, since what follows may be an error's own text.
const CHINESE_SENTENCES = {
  "Loading the node code …": "正在加载节点代码……",
  "The node code cannot be loaded: ": "无法加载节点代码：",
};

let changed = () => {};

// What the words that follow are written in: a lesson's language stays for the lab behind it.
export function speak(code) {
  language = code;
  changed();
}

// For a text that is to be seen before it is known in which language.
export function whenSpoken(call) {
  changed = call;
}

export function spoken() {
  return language;
}

export function word(english) {
  const found = language === "zh" ? CHINESE[english] : null;
  return found ? `${found} ${english.trim()}${/\s$/.test(english) ? " " : ""}` : english;
}

export function sentence(english) {
  const found = language === "zh" && Object.entries(CHINESE_SENTENCES).find(([begin]) => english.startsWith(begin));
  return found ? found[1] + english.slice(found[0].length) : english;
}
