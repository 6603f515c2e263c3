const QUOTES = [
  "What is on the branch is what is in the cluster.",
  "A hand edit goes back.",
  "The cost follows what changed."
];

exports.quoteOfTheDay = (day) => QUOTES[Math.abs(day) % QUOTES.length];
