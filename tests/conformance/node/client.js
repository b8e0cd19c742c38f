'use strict';

// One send and consume round with the Node client: node client.js NAMESRV TOPIC GROUP COUNT.
//
// Prints one JSON object {"sent": [...], "received": [...]}; ends with 1 when not everything comes within 60 seconds.
// Requests are signed with the keys in ACCESS_KEY and SECRET_KEY, if they are set.

const { Consumer, Producer, Message } = require('ali-ons');

const [ namesrv, topic, group, count ] = process.argv.slice(2);
// Only asked for when no name server is given.
const httpclient = { request: async url => { throw new Error(`unexpected: ${url}`); } };
const keys = process.env.ACCESS_KEY ? { accessKey: process.env.ACCESS_KEY, secretKey: process.env.SECRET_KEY } : {};
const quiet = { info() {}, debug() {}, warn() {}, error: (...args) => console.error(...args) };

async function main() {
  const producer = new Producer({ nameSrv: namesrv, producerGroup: `${group}-producer`, httpclient, logger: quiet, ...keys });
  await producer.ready();
  const sent = [];
  for (let i = 0; i < Number(count); i++) {
    const message = new Message(topic, 'TagNode', `node-${i}`);
    message.keys = [ `k${i}` ];
    const result = await producer.send(message);
    if (result.sendStatus !== 'SEND_OK') throw new Error(JSON.stringify(result));
    sent.push({ body: `node-${i}`, queueId: Number(result.messageQueue.queueId), queueOffset: Number(result.queueOffset) });
  }

  const consumer = new Consumer({ nameSrv: namesrv, consumerGroup: group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET', httpclient, logger: quiet, ...keys });
  const received = [];
  await new Promise(resolve => {
    setTimeout(resolve, 60000);
    // It calls it an error that a new group has no retry topic yet.
    consumer.on('error', error => console.error(error.message));
    consumer.subscribe(topic, 'TagNode', async message => {
      received.push({ body: message.body.toString(), queueId: message.queueId, queueOffset: Number(message.queueOffset), tags: message.tags });
      if (received.length === sent.length) resolve();
    });
  });
  console.log(JSON.stringify({ sent, received }));
  process.exit(received.length < sent.length ? 1 : 0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
