/* Pictures and speech: what is said without typing. */

let attachment = null;  // an image part, as AG-UI has it

async function attach(file) {
  if (!file?.type.startsWith("image/")) return;
  const url = await new Promise((read, failed) => {
    const reader = new FileReader();
    reader.onload = () => read(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
  attachment = { type: "image", source: { type: "data", value: url.slice(url.indexOf(",") + 1), mimeType: file.type } };
  const image = element("img");
  image.src = url;
  image.alt = "The image to send";
  $("attached").replaceChildren(image, file.name, button("Remove", () => { detach(); $("input").focus(); }));
  $("attached").hidden = false;
  $("input").focus();
}

function detach() {
  const attached = attachment;
  attachment = null;
  $("attached").hidden = true;
  $("attached").replaceChildren();
  return attached;
}

$("attach").onclick = () => $("file").click();
$("file").onchange = () => { attach($("file").files[0]); $("file").value = ""; };
$("input").onpaste = (event) => {
  const file = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
  if (!file) return;
  event.preventDefault();
  attach(file);
};
document.ondragover = (event) => event.preventDefault();
document.ondrop = (event) => { event.preventDefault(); attach(event.dataTransfer.files[0]); };

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
