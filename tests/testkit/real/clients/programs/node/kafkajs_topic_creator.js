// A topic by kafkajs' admin client: topic_creator.js BOOTSTRAP TOPIC [PARTITIONS REPLICAS]. What is not named is left to
// the broker; kafkajs says so in every version of CreateTopics that it knows (0 to 3).

import kafkajs from 'kafkajs'

const [bootstrap, topic, numPartitions, replicationFactor] = process.argv.slice(2)
const numbers = numPartitions ? { numPartitions: Number(numPartitions), replicationFactor: Number(replicationFactor) } : {}
const kafka = new kafkajs.Kafka({ brokers: bootstrap.split(','), logLevel: kafkajs.logLevel.NOTHING })
const admin = kafka.admin()
await admin.connect()
try {
  await admin.createTopics({ topics: [{ topic, ...numbers }], waitForLeaders: true })
} finally {
  await admin.disconnect()
}
