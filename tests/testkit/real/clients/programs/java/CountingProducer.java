// Sends numbered values "<name>:<partition>:<n>" and says what became of them.
// Compiles against every client from 0.8.2 to 4.x.
// One JSON line per second on standard output; the last one has "final": true.

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

public final class CountingProducer {
    private static final int ERRORS_SHOWN_MAX = 20;

    private final long[] lastOffset;
    private final BufferedWriter acknowledged;
    private final StringBuilder errors = new StringBuilder();
    private boolean ended;
    private long sent;
    private long acked;
    private long failed;
    private String until;
    private String header;
    private String filling = "";
    private boolean offsetsKnown = true;
    private boolean offsetsInOrder = true;

    private CountingProducer(int partitions, String acknowledgedFile) throws Exception {
        lastOffset = new long[partitions];
        Arrays.fill(lastOffset, -1);
        acknowledged = Files.newBufferedWriter(Paths.get(acknowledgedFile), StandardCharsets.UTF_8);
    }

    // Arguments: bootstrap topic partitions records compression, then as name=value: client properties, program.* settings.
    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[2]);
        long records = Long.parseLong(arguments[3]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("compression.type", arguments[4]);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        Properties program = new Properties();
        for (int at = 5; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            (pair[0].startsWith("program.") ? program : settings).put(pair[0], pair[1]);
        }
        String name = program.getProperty("program.name", "java");
        long perSecond = Long.parseLong(program.getProperty("program.records_per_second", "0"));
        CountingProducer counts = new CountingProducer(partitions, program.getProperty("program.acknowledged_file"));
        counts.header = program.getProperty("program.header");
        // Behind each value: one letter, so many times. It compresses as well as anything does.
        counts.filling = "a".repeat(Integer.parseInt(program.getProperty("program.filling_bytes", "0")));
        counts.until = program.getProperty("program.until_file");
        counts.run(settings, arguments[1], name, records, perSecond);
    }

    private void run(Properties settings, String topic, String name, long records, long perSecond) throws Exception {
        Thread reporter = new Thread(this::reportEverySecond);
        reporter.setDaemon(true);
        reporter.start();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            long start = System.nanoTime();
            for (long number = 0; number < records && !(until != null && Files.exists(Paths.get(until))); number++) {
                send(producer, topic, name, number);
                if (perSecond > 0) {
                    long ahead = start + (number + 1) * 1_000_000_000L / perSecond - System.nanoTime();
                    if (ahead > 1_000_000) {
                        Thread.sleep(ahead / 1_000_000);
                    }
                }
            }
            flush(producer);
        } catch (Exception error) {
            failed("-", error);
        }
        synchronized (this) {
            acknowledged.close();
            report(true);
            ended = true;
        }
        // Threads of a client that failed must not keep the program alive.
        System.exit(failed == 0 ? 0 : 1);
    }

    // 0.8 has none: there its end waits for all that was sent.
    private static void flush(KafkaProducer<String, String> producer) throws Exception {
        try {
            KafkaProducer.class.getMethod("flush").invoke(producer);
        } catch (NoSuchMethodException none) {
            return;
        }
    }

    private void send(KafkaProducer<String, String> producer, String topic, String name, long number) {
        int partition = (int) (number % lastOffset.length);
        long position = number / lastOffset.length;
        String value = name + ":" + partition + ":" + position + filling;
        synchronized (this) {
            sent++;
        }
        // 4.x may throw and call back, in either order, for one and the same record: the call back decides.
        boolean[] thrown = {false};
        boolean[] called = {false};
        try {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, partition, null, value);
            if (header != null) {
                // 0.10 has no headers, and this compiles against it, too.
                Object headers = ProducerRecord.class.getMethod("headers").invoke(record);
                headers.getClass().getMethod("add", String.class, byte[].class).invoke(headers, header, new byte[] {1});
            }
            producer.send(record, (metadata, error) -> {
                synchronized (this) {
                    called[0] = true;
                    failed -= thrown[0] ? 1 : 0;
                }
                if (error == null) {
                    acknowledged(partition, position, metadata);
                } else {
                    failed(value, error);
                }
            });
        } catch (Exception error) {
            synchronized (this) {
                if (!called[0]) {
                    thrown[0] = true;
                    failed(value, error);
                }
            }
        }
    }

    private synchronized void acknowledged(int partition, long position, RecordMetadata metadata) {
        acked++;
        long offset = metadata.offset();
        if (offset < 0) {
            offsetsKnown = false;
        } else if (offset <= lastOffset[partition]) {
            offsetsInOrder = false;
        }
        lastOffset[partition] = offset;
        try {
            acknowledged.write(partition + " " + position + " " + offset + "\n");
        } catch (Exception error) {
            failed("-", error);
        }
    }

    private synchronized void failed(String value, Throwable error) {
        failed++;
        if (failed <= ERRORS_SHOWN_MAX) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            errors.append(errors.length() == 0 ? "" : ", ").append(quoted(value + ": " + error + " <- " + cause));
        }
    }

    private void reportEverySecond() {
        try {
            while (true) {
                Thread.sleep(1000);
                synchronized (this) {
                    if (ended) {
                        return;
                    }
                    report(false);
                }
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    private void report(boolean last) {
        System.out.println("{\"sent\": " + sent + ", \"acked\": " + acked + ", \"failed\": " + failed
            + ", \"offsets_known\": " + offsetsKnown + ", \"offsets_in_order\": " + offsetsInOrder
            + ", \"errors\": [" + errors + "], \"final\": " + last + "}");
        System.out.flush();
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else {
                out.append(one < ' ' ? ' ' : one);
            }
        }
        return out.append('"').toString();
    }
}
