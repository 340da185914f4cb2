// Reads a topic by @platformatic/kafka as a member of a group that commits. Any error of the stream ends it.

import { Consumer } from '@platformatic/kafka'
import { given, Read, reachedTheUser } from './program.js'

const { group: groupId, topic } = given
const read = new Read()
const consumer = new Consumer({
  clientId: 'platformatic',
  groupId,
  bootstrapBrokers: given.bootstrap.split(','),
  retries: 1000,
  retryDelay: 200,
  metadataMaxAge: 5000
})
const stream = await consumer.consume({
  topics: [topic],
  autocommit: false,
  mode: 'committed',
  fallbackMode: 'earliest',
  maxWaitTime: 500
})
const positions = new Map()
const commit = () =>
  consumer.commit({
    offsets: [...positions].map(([partition, offset]) => ({ topic, partition, offset, leaderEpoch: -1 }))
  })
stream.on('error', reachedTheUser)
stream.on('data', ({ partition, offset, value }) => {
  read.record(partition, Number(offset), value)
  positions.set(partition, offset + 1n)
  if (read.commitIsDue) read.commit(commit)
})
await read.ended()
await read.commit(commit, { isLast: true })
const partitions = Array.from({ length: given.partitions }, (_, number) => number)
const offsets = await consumer.listCommittedOffsets({ topics: [{ topic, partitions }] })
const committed = Object.fromEntries(offsets.get(topic).map((offset, partition) => [partition, Number(offset)]))
await stream.close()
await consumer.close(true)
read.finish(committed)
