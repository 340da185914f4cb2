// What the Node programs have in common: their one argument (JSON), the file of what they were told, the last line.
// All of it has the form of the Python programs' beside them (program.py).

import { createWriteStream, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const ERRORS_SHOWN_MAX = 20

export const given = JSON.parse(process.argv[2])
// An error of theirs has its cause below it, sometimes several.
const said = error => [error, ...(error.errors ?? []), error.cause].filter(Boolean).map(String).join(' <- ')

export function finish (outcome, ok) {
  process.stdout.write(`${JSON.stringify({ ...outcome, final: true })}\n`, () => process.exit(ok ? 0 : 1))
}

// Ends the program without a last line.
export function reachedTheUser (error) {
  console.error('an error reached the user:', error)
  process.exit(2)
}

// Counts what became of numbered records, and writes down the offset of each that was acknowledged.
export class Told {
  sent = 0
  acked = 0
  failures = 0
  errors = []
  #lines = []
  #lastOffset = new Map()
  #known = true
  #inOrder = true

  // Yields arrays of records of one partition, the partitions in turn, at the pace that was asked for.
  async * batches (recordsAtOnce) {
    const { name, partitions, records, pace } = given
    const begun = performance.now()
    const waiting = new Map()
    for (let index = 0; index < records && !(pace.until_file && existsSync(pace.until_file)); index++) {
      const partition = index % partitions
      const number = Math.floor(index / partitions)
      const batch = waiting.get(partition) ?? []
      batch.push({ partition, number, value: `${name}:${partition}:${number}` })
      waiting.set(partition, batch)
      this.sent++
      if (batch.length >= recordsAtOnce) {
        waiting.delete(partition)
        yield batch
      }
      if (pace.records_per_second) {
        const ahead = begun + ((index + 1) * 1000) / pace.records_per_second - performance.now()
        if (ahead > 0) await sleep(ahead)
      }
    }
    yield * waiting.values()
  }

  acknowledged ({ partition, number }, offset) {
    this.acked++
    this.#known &&= offset >= 0
    this.#inOrder &&= offset > (this.#lastOffset.get(partition) ?? -1)
    this.#lastOffset.set(partition, offset)
    this.#lines.push(`${partition} ${number} ${offset}\n`)
  }

  failed (error, records = 1) {
    this.failures += records
    if (this.errors.length < ERRORS_SHOWN_MAX) this.errors.push(said(error))
  }

  finish () {
    writeFileSync(given.told_file, this.#lines.join(''))
    const { sent, acked, failures: failed, errors } = this
    const outcome = { sent, acked, failed, errors, offsets_known: this.#known, offsets_in_order: this.#inOrder }
    finish(outcome, failed === 0 && acked === sent)
  }
}

// Writes down what a consumer got, and says how long it goes on.
export class Read {
  records = 0
  #values = new Set()
  #file = createWriteStream(given.records_file)
  #end = performance.now() + given.seconds_max * 1000
  #committed = performance.now()
  #notices = []

  constructor () {
    if (!given.group) throw new Error('this program reads in groups only')
  }

  record (partition, offset, value) {
    this.records++
    this.#values.add(String(value))
    this.#file.write(`${partition} ${offset} ${value}\n`)
  }

  // With a file to wait for, the number in it is how many different values there are to read.
  get goesOn () {
    return performance.now() < this.#end && !this.#isEnough
  }

  get #isEnough () {
    if (!given.until_file) return this.records >= given.records
    return existsSync(given.until_file) && this.#values.size >= Number(readFileSync(given.until_file, 'utf8') || Infinity)
  }

  get commitIsDue () {
    const due = given.commit_every_seconds && performance.now() - this.#committed > given.commit_every_seconds * 1000
    if (due) this.#committed = performance.now()
    return Boolean(due)
  }

  // Resolves when the reader has enough or its time is up.
  async ended () {
    while (this.goesOn) await sleep(50)
  }

  // Commits, and counts what failed: the next one commits that, too. The last is tried until it is done.
  async commit (commit, { isLast = false } = {}) {
    while (true) {
      try {
        return await commit()
      } catch (error) {
        if (!given.until_file || performance.now() > this.#end) reachedTheUser(error)
        this.#notices.push(said(error))
        if (!isLast) return
        await sleep(500)
      }
    }
  }

  finish (committed) {
    const outcome = { records: this.records, committed, notices: this.#notices }
    this.#file.end(() => finish(outcome, this.#isEnough))
  }
}
