// Small programs around clients of Node of old: numbered records, and readers. What they print and write down has the form
// of the Python programs' (program.py). Usage: clients.js CLIENT producer|reader JSON
'use strict'

const { writeFileSync } = require('node:fs')
const { setTimeout: sleep } = require('node:timers/promises')
const { promisify } = require('node:util')

const ERRORS_SHOWN_MAX = 20
const RECORDS_AT_ONCE = 10
const COMMIT_MS = 1500
const [client, role, told] = process.argv.slice(2)
const given = JSON.parse(told)
const { topic, partitions, group } = given
const places = Array.from({ length: partitions }, (_, partition) => partition)

function finish (outcome, ok) {
  process.stdout.write(JSON.stringify({ ...outcome, final: true }) + '\n', () => process.exit(ok ? 0 : 1))
}

function failed (error) {
  console.error(error)
  process.exit(2)
}

// Sends all records, ten at a time to each partition in turn; send resolves with the offset of the first one.
async function produce (send) {
  const errors = []
  const lines = []
  const each = given.records / partitions
  let failures = 0
  for (let first = 0; first < each; first += RECORDS_AT_ONCE) {
    for (const partition of places) {
      const count = Math.min(RECORDS_AT_ONCE, each - first)
      const values = Array.from({ length: count }, (_, at) => `${given.name}:${partition}:${first + at}`)
      try {
        const base = Number(await send(partition, values))
        values.forEach((_, at) => lines.push(`${partition} ${first + at} ${base + at}\n`))
      } catch (error) {
        failures += count
        if (errors.length < ERRORS_SHOWN_MAX) errors.push(String(error))
      }
    }
  }
  writeFileSync(given.told_file, lines.join(''))
  const outcome = { sent: given.records, acked: lines.length, failed: failures, errors }
  finish(outcome, failures === 0 && lines.length === given.records)
}

// What was read, and where the next one of each partition is.
const read = {
  lines: [],
  places: new Set(),
  next: new Map(),
  record (partition, offset, value) {
    this.places.add(`${partition} ${offset}`)
    this.lines.push(`${partition} ${offset} ${value}\n`)
    this.next.set(partition, Number(offset) + 1)
  },
  get isEnough () { return this.places.size >= given.records },
  async ended () {
    const end = performance.now() + given.seconds_max * 1000
    while (!this.isEnough && performance.now() < end) await sleep(50)
  },
  finish (more) {
    writeFileSync(given.records_file, this.lines.join(''))
    finish({ records: this.lines.length, ...more }, this.isEnough)
  }
}

// Asks for each partition's offset; resolves with all of them.
async function offsets (ask) {
  const found = {}
  for (const partition of places) found[partition] = await ask(partition)
  return found
}

// ---------------------------------------------------------------------- kafka-node
function kafkaNode () {
  const kafka = require('kafka-node')
  return { kafka, connected: new kafka.KafkaClient({ kafkaHost: given.bootstrap, requestTimeout: 30000 }) }
}

async function kafkaNodeProducer () {
  const { kafka, connected } = kafkaNode()
  const producer = new kafka.Producer(connected, { requireAcks: -1, ackTimeoutMs: 30000 })
  await new Promise((resolve, reject) => producer.once('ready', resolve).once('error', reject))
  const attributes = { none: 0, gzip: 1 }[given.compression]
  const send = promisify(producer.send.bind(producer))
  await promisify(connected.refreshMetadata.bind(connected))([topic])
  await produce(async (partition, messages) => {
    const answer = await send([{ topic, partition, messages, attributes }])
    return answer[topic][partition]
  })
}

async function kafkaNodeReader () {
  const { kafka, connected } = kafkaNode()
  const took = one => read.record(one.partition, one.offset, one.value)
  if (group) {
    const settings = { kafkaHost: given.bootstrap, groupId: group, fromOffset: 'earliest', autoCommit: false }
    const consumer = new kafka.ConsumerGroup(settings, topic)
    consumer.on('message', took).on('error', failed)
    await read.ended()
    const committed = await promisify(consumer.commit.bind(consumer, true))()
    await promisify(consumer.close.bind(consumer, false))()
    return read.finish({ answer: committed })
  }
  const from = places.map(partition => ({ topic, partition, offset: 0 }))
  const consumer = new kafka.Consumer(connected, from, { fromOffset: true, autoCommit: false })
  consumer.on('message', took).on('error', failed)
  await read.ended()
  const asker = new kafka.Offset(kafkaNode().connected)
  const ask = promisify(asker.fetch.bind(asker))
  const at = time => partition => ask([{ topic, partition, time, maxNum: 1 }]).then(found => found[topic][partition][0])
  read.finish({ ends: await offsets(at(-1)), times: await offsets(at(given.time_ms)) })
}

// ---------------------------------------------------------------------- no-kafka
function noKafka (Kind, more) {
  const kafka = require('no-kafka')
  const logger = { logLevel: 1 }
  return new kafka[Kind]({ connectionString: given.bootstrap, logger, ...more(kafka) })
}

async function noKafkaProducer () {
  const codecs = { none: 'COMPRESSION_NONE', gzip: 'COMPRESSION_GZIP' }
  const producer = noKafka('Producer', kafka => ({ requiredAcks: -1, codec: kafka[codecs[given.compression]] }))
  await producer.init()
  await produce(async (partition, values) => {
    const answers = await producer.send(values.map(value => ({ topic, partition, message: { value } })))
    const wrong = answers.find(answer => answer.error)
    if (wrong) throw wrong.error
    return answers[0].offset
  })
}

async function noKafkaReader () {
  const took = (messages, _topic, partition) => {
    for (const { offset, message } of messages) read.record(partition, offset, message.value)
  }
  const kafka = require('no-kafka')
  if (group) {
    const consumer = noKafka('GroupConsumer', () => ({ groupId: group, startingOffset: kafka.EARLIEST_OFFSET }))
    await consumer.init([{ subscriptions: [topic], handler: took }])
    await read.ended()
    await consumer.commitOffset(
      [...read.next].map(([partition, next]) => ({ topic, partition, offset: next - 1, metadata: '' }))
    )
    const found = await consumer.fetchOffset(places.map(partition => ({ topic, partition })))
    const committed = Object.fromEntries(found.map(one => [one.partition, Number(one.offset)]))
    await consumer.end()
    return read.finish({ answer: committed })
  }
  const consumer = noKafka('SimpleConsumer', () => ({}))
  await consumer.init()
  await consumer.subscribe(topic, places, { time: kafka.EARLIEST_OFFSET }, took)
  await read.ended()
  const at = time => partition => consumer.offset(topic, partition, time)
  read.finish({ ends: await offsets(at(kafka.LATEST_OFFSET)), times: await offsets(at(given.time_ms)) })
}

// ---------------------------------------------------------------------- kafkajs, by the name of its package
function kafkajs () {
  const { Kafka, logLevel } = require(client)
  return new Kafka({ brokers: given.bootstrap.split(','), logLevel: logLevel.ERROR })
}

async function kafkajsProducer () {
  const { CompressionTypes } = require(client)
  const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[given.compression]
  const producer = kafkajs().producer({ createPartitioner: () => ({ message }) => message.partition })
  await producer.connect()
  await produce(async (partition, values) => {
    const messages = values.map(value => ({ partition, value }))
    const [answer] = await producer.send({ topic, acks: -1, compression, messages })
    return answer.offset ?? answer.baseOffset
  })
}

async function kafkajsReader () {
  const consumer = kafkajs().consumer({ groupId: group, maxWaitTimeInMs: 500 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => read.record(partition, message.offset, message.value)
  })
  await read.ended()
  await sleep(COMMIT_MS) // it commits after each round
  await consumer.disconnect()
  read.finish({})
}

const programs = {
  'kafka-node producer': kafkaNodeProducer,
  'kafka-node reader': kafkaNodeReader,
  'no-kafka producer': noKafkaProducer,
  'no-kafka reader': noKafkaReader,
  'kafkajs producer': kafkajsProducer,
  'kafkajs reader': kafkajsReader,
  'kafkajs-1.12 producer': kafkajsProducer,
  'kafkajs-1.12 reader': kafkajsReader,
  'kafkajs-1.16 producer': kafkajsProducer,
  'kafkajs-1.16 reader': kafkajsReader
}
programs[`${client} ${role}`]().catch(failed)
