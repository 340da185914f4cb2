// Producer of a chaos run: sends numbered records at a pace until a file tells it to stop, and writes down what it is
// told of each: "a partition number offset time_ms", or "f partition number time_ms error".
// Arguments: name=value, client properties and program.* settings. The last line on standard output is JSON.

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.Properties;
import java.util.Random;
import java.util.zip.CRC32;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public final class ChaosProducer {
    private static final int ERRORS_SHOWN_MAX = 20;
    private static final int BURST = 16;
    private static final long FLUSH_MS_MAX = 150_000;

    private final Properties program = new Properties();
    private final Properties settings = new Properties();
    private final BufferedWriter told;
    private final String name;
    private final long[] sent;
    private final long[] done;
    private final StringBuilder errors = new StringBuilder();
    private int errorsShown;
    private long acked;
    private long failed;
    private boolean ended;

    private ChaosProducer(String[] arguments) throws Exception {
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            boolean ours = pair[0].startsWith("program.");
            (ours ? program : settings).put(ours ? pair[0].substring(8) : pair[0], pair[1]);
        }
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        name = program.getProperty("name");
        int partitions = Integer.parseInt(program.getProperty("partitions"));
        sent = new long[partitions];
        done = new long[partitions];
        told = Files.newBufferedWriter(Paths.get(program.getProperty("told_file")), StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        new ChaosProducer(arguments).run();
    }

    private void run() throws Exception {
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        Path stopFile = Paths.get(program.getProperty("stop_file"));
        double rate = Double.parseDouble(program.getProperty("records_per_second"));
        long outstandingMax = Long.parseLong(program.getProperty("outstanding_max"));
        Random random = new Random((program.getProperty("seed") + name).hashCode());
        double credit = 0;
        long last = System.nanoTime();
        long written = last;
        try {
            while (!Files.exists(stopFile)) {
                long now = System.nanoTime();
                credit = Math.min(credit + (now - last) * rate / 1e9, rate);
                last = now;
                int partition;
                while (credit >= 1 && (partition = freePartition(outstandingMax)) >= 0) {
                    for (int index = 0; index < BURST && credit >= 1; index++, credit--) {
                        send(producer, partition, random.nextInt());
                    }
                }
                if (now - written > 1_000_000_000L) {
                    written = now;
                    synchronized (this) {
                        told.flush();
                    }
                }
                Thread.sleep(20);
            }
        } catch (RuntimeException error) {
            synchronized (this) {
                noticed(error);
            }
        }
        producer.close(Duration.ofMillis(FLUSH_MS_MAX));
        finish();
    }

    private synchronized int freePartition(long outstandingMax) {
        int best = 0;
        for (int partition = 1; partition < sent.length; partition++) {
            if (sent[partition] - done[partition] < sent[best] - done[best]) {
                best = partition;
            }
        }
        return sent[best] - done[best] < outstandingMax ? best : -1;
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int partition, int random) {
        long number;
        synchronized (this) {
            number = sent[partition]++;
        }
        String body = name + ":" + partition + ":" + number + ":" + String.format("%08x", random);
        CRC32 crc = new CRC32();
        crc.update(body.getBytes(StandardCharsets.UTF_8));
        byte[] value = (body + ":" + String.format("%08x", crc.getValue())).getBytes(StandardCharsets.UTF_8);
        // 4.x may throw and call back, in either order, for one and the same record: it is counted once.
        boolean[] counted = {false};
        try {
            producer.send(new ProducerRecord<>(program.getProperty("topic"), partition, null, value),
                (metadata, error) -> ended(partition, number, metadata == null ? -1 : metadata.offset(), error, counted));
        } catch (RuntimeException error) {
            ended(partition, number, -1, error, counted);
        }
    }

    private synchronized void ended(int partition, long number, long offset, Exception error, boolean[] counted) {
        if (counted[0] || ended) {
            return;
        }
        counted[0] = true;
        done[partition]++;
        try {
            long now = System.currentTimeMillis();
            if (error == null) {
                acked++;
                told.write("a " + partition + " " + number + " " + offset + " " + now + "\n");
            } else {
                failed++;
                noticed(error);
                told.write("f " + partition + " " + number + " " + now + " " + error.getClass().getSimpleName() + "\n");
            }
        } catch (java.io.IOException problem) {
            noticed(problem);
        }
    }

    private void noticed(Exception error) {
        if (errorsShown++ < ERRORS_SHOWN_MAX) {
            errors.append(errors.length() == 0 ? "" : ", ").append(quoted(error + " <- " + error.getCause()));
        }
    }

    private synchronized void finish() throws Exception {
        ended = true;
        told.close();
        long all = 0;
        for (long one : sent) {
            all += one;
        }
        System.out.println("{\"sent\": " + all + ", \"acked\": " + acked + ", \"failed\": " + failed
            + ", \"errors\": [" + errors + "], \"final\": true}");
        System.out.flush();
        // Threads of a client that failed must not keep the program alive.
        System.exit(failed == 0 && acked == all ? 0 : 1);
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            out.append(one == '"' || one == '\\' || one < ' ' ? ' ' : one);
        }
        return out.append('"').toString();
    }
}
