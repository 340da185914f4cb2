// Numbered records by @platformatic/kafka, one send at a time.

import { Producer } from '@platformatic/kafka'
import { given, Told } from './program.js'

const { settings, topic } = given
const told = new Told()
const producer = new Producer({
  clientId: 'platformatic',
  bootstrapBrokers: given.bootstrap.split(','),
  idempotent: settings.idempotent,
  acks: -1,
  compression: given.compression,
  retries: 1000,
  retryDelay: 200,
  timeout: settings.request_seconds * 1000,
  requestTimeout: settings.request_seconds * 1000
})
const headers = new Map(given.headers.map(name => [Buffer.from(name), Buffer.of(1)]))
for await (const batch of told.batches(settings.records_at_once)) {
  try {
    const messages = batch.map(({ partition, value }) => ({ topic, partition, value: Buffer.from(value), headers }))
    const { offsets } = await producer.send({ messages })
    const { offset } = offsets.find(one => one.partition === batch[0].partition)
    batch.forEach((record, index) => told.acknowledged(record, Number(offset) + index))
  } catch (error) {
    told.failed(error, batch.length)
  }
}
await producer.close()
told.finish()
