// node search.cjs LUNR INDEX < questions: prints the pages of each, best first, as the site ranks them
const { readFileSync } = require("node:fs");
const lunr = require(process.argv[2]);
const { config, docs } = JSON.parse(readFileSync(process.argv[3], "utf8"));

lunr.tokenizer.separator = new RegExp(config.separator);
const index = lunr(function () {
  this.pipeline.reset();
  this.searchPipeline.reset();
  // their order is that of lunr: Material only takes away those that `pipeline` does not name
  for (const name of ["trimmer", "stopWordFilter", "stemmer"].filter((one) => config.pipeline.includes(one))) {
    this.pipeline.add(lunr[name]);
    if (name === "stemmer") this.searchPipeline.add(lunr[name]);
  }
  this.ref("location");
  for (const [name, options] of Object.entries(config.fields)) this.field(name, options);
  const read = (html) => html.replace(/<[^>]*>/g, " ");
  for (const doc of docs) this.add({ ...doc, title: read(doc.title), text: read(doc.text) });
});

function rank(question) {
  const words = question.split(/\s+/).filter((word) => lunr.stopWordFilter(new lunr.Token(word)));
  const scores = new Map();
  for (const { ref, score, matchData } of index.search(words.join(" "))) {
    const page = ref.split("#")[0];
    // Material prefers whole pages, and those with more of the words
    const boost = Number(page === ref) + Object.keys(matchData.metadata).length / words.length;
    scores.set(page, Math.max(scores.get(page) ?? 0, score * (1 + boost ** 2)));
  }
  return [...scores].sort((one, other) => other[1] - one[1]).map(([page]) => page);
}

const questions = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(questions.map((question) => rank(question).slice(0, 5))));
