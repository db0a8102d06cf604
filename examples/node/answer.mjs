// answer.mjs - publishes its identity on the channel that each message on demo/question names; through bccn pipe.
//   node answer.mjs /run/bccnd/bus.sock
//   bccn pub demo/question demo/answer
// When the daemon restarts, bccn pipe connects and subscribes again.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const bus = spawn("bccn", ["--socket", process.argv[2], "pipe", "--program", "answer"], {
  stdio: ["pipe", "pipe", "inherit"],
});
const send = (operation) => bus.stdin.write(JSON.stringify(operation) + "\n");
bus.on("exit", (status) => process.exit(status ?? 1));

let identity = "";
send({ op: "whoami" });
send({ op: "subscribe", pattern: "demo/question", id: "subscribe" });
for await (const line of createInterface({ input: bus.stdout })) {
  const got = JSON.parse(line);
  if (got.event === "identity") console.log(`I am ${(identity = got.src)}`);
  else if (got.event === "message" && got.chan === "demo/question") {
    console.log(`${got.src} asks on ${got.payload}`);
    send({ op: "publish", chan: got.payload, payload: identity });
  } else if (got.event === "refused") console.error(`refused: ${got.reason} ${got.about}`);
  else if (got.event === "gap" && got.lost === 0) console.error("messages may have been lost here: the daemon has crashed");
  else if (got.event === "gap") console.error(`${got.lost} messages were lost here: this reader is too slow`);
  else if (got.event === "away" || got.event === "back") console.error(`the daemon is ${got.event}`);
}
