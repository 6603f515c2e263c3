const { quoteOfTheDay } = require("greetings");

module.exports = {
  main: async function (event, context) {
    const day = Number(event.extensions.request.query.day || 0);
    return { quote: quoteOfTheDay(day), signed: process.env.TOKEN !== undefined };
  }
};
