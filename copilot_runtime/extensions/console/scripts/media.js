/* Input by files and speech. */

// any file if the server reads files, else only images for the model
const takesFiles = Boolean(pages.knowledge);
const attachments = [];  // AG-UI message parts

async function readFile(file) {
  const url = await readAsDataUrl(file);
  const source = { type: "data", value: url.slice(url.indexOf(",") + 1), mimeType: file.type || "application/octet-stream" };
  return { type: file.type.startsWith("image/") ? "image" : "document", source, metadata: { filename: file.name } };
}

async function attach(files) {
  for (const file of files) {
    if (!takesFiles && !file.type.startsWith("image/")) continue;
    attachments.push(await readFile(file));
  }
  drawAttachments();
  $("input").focus();
}

function drawAttachments() {
  $("attached").replaceChildren(...attachments.map((part, index) => {
    const item = element("span");
    if (part.type === "image") {
      const image = item.appendChild(partView(part));
      image.alt = "The image to send";
    }
    item.append(part.metadata.filename, button("Remove", () => {
      attachments.splice(index, 1);
      drawAttachments();
      $("input").focus();
    }));
    return item;
  }));
  $("attached").hidden = attachments.length === 0;
}

function detach() {
  const parts = attachments.splice(0);
  drawAttachments();
  return parts;
}

if (takesFiles) {
  $("file").removeAttribute("accept");
  for (const name of ["aria-label", "title"]) $("attach").setAttribute(name, "Attach files");
}
$("attach").onclick = () => $("file").click();
$("file").onchange = () => { attach([...$("file").files]); $("file").value = ""; };
$("input").onpaste = (event) => {
  const files = [...event.clipboardData.files].filter(({ type }) => takesFiles || type.startsWith("image/"));
  if (!files.length) return;
  event.preventDefault();
  attach(files);
};
document.ondragover = (event) => event.preventDefault();
document.ondrop = (event) => { event.preventDefault(); attach([...event.dataTransfer.files]); };

let recorder = null;

async function speak() {
  if (recorder) return recorder.stop();
  let sound;
  try {
    sound = await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch (error) {
    return showProblem(new Problem("No microphone", `The browser gives no sound. (${error.message})`), [["Try again", speak]]);
  }
  const heard = [];
  recorder = new MediaRecorder(sound);
  recorder.ondataavailable = ({ data }) => heard.push(data);
  recorder.onstop = async () => {
    const type = recorder.mimeType;
    recorder = null;
    sound.getTracks().forEach((track) => track.stop());
    setSpeaking(false);
    await transcribe(new Blob(heard, { type }));
  };
  recorder.start();
  return setSpeaking(true);
}

function setSpeaking(speaking) {
  $("speak").setAttribute("aria-pressed", String(speaking));
  $("speak").setAttribute("aria-label", speaking ? "Stop speaking" : "Speak");
}

async function transcribe(blob) {
  const form = new FormData();
  form.append("audio", blob, `recording.${blob.type.includes("mp4") ? "mp4" : "webm"}`);
  $("speak").disabled = true;
  try {
    const { text } = await json("POST", "/transcribe", form);
    $("input").value = [$("input").value.trim(), text].filter(Boolean).join(" ");
    $("input").focus();
  } catch (error) {
    showProblem(error, [["Try again", (event) => { event.target.closest(".banner").remove(); transcribe(blob); }]]);
  } finally {
    $("speak").disabled = false;
  }
}

$("speak").onclick = speak;
