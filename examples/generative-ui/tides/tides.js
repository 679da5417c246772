const find = (selector) => document.querySelector(selector);
const LOW = 0.8;
const width = find("svg").clientWidth;
let highs = [];

function heightAt(hour) {
  const [time, height] = highs.reduce((near, it) =>
    Math.abs(it[0] - hour) < Math.abs(near[0] - hour) ? it : near,
  );
  const middle = (height + LOW) / 2;
  return middle + (height - middle) * Math.cos(((hour - time) / 6.2) * Math.PI);
}

const toX = (hour) => 22 + (hour / 24) * (width - 44);
const toY = (height) => 200 - height * 34;
const clock = (hour) =>
  `${String(Math.floor(hour)).padStart(2, "0")}:${String((hour % 1) * 60).padStart(2, "0")}`;

function draw(tides) {
  highs = tides;
  find("svg").setAttribute("viewBox", `0 0 ${width} 240`);
  const hours = Array.from({ length: 97 }, (_, at) => at / 4);
  const curve = hours.map((hour) => `L${toX(hour)},${toY(heightAt(hour))}`).join("");
  find("#water").setAttribute("d", `M${toX(0)},212${curve}L${toX(24)},212Z`);
  find("#hours").innerHTML = [0, 6, 12, 18, 24]
    .map((hour) => `<text x="${toX(hour)}" y="234">${clock(hour)}</text>`)
    .join("");
}

function choose(hour) {
  const height = heightAt(hour);
  find("#hour").value = hour;
  find("#now").setAttribute("x1", toX(hour));
  find("#now").setAttribute("x2", toX(hour));
  find("#dot").setAttribute("cx", toX(hour));
  find("#dot").setAttribute("cy", toY(height));
  find("#height").textContent = `${clock(hour)}, ${height.toFixed(1)} m`;
}

find("#hour").oninput = (event) => choose(Number(event.target.value));
find("#remind").onclick = () =>
  Websandbox.connection.remote.remind({ text: `Water: ${find("#height").textContent}` });
