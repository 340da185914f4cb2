// The clients that came with brokers 0.8 and 0.9 and are written in Scala: the producer, and the consumer of single
// partitions. The last line on standard output is JSON with "final": true.

import java.io.BufferedWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.Partitioner;
import kafka.producer.ProducerConfig;
import kafka.utils.VerifiableProperties;

public final class ScalaClients {
    private static final int AT_ONCE = 10;
    private static final int FETCH_BYTES = 1 << 20;
    private static final int PATIENCE_MS = 30_000;
    private static final String NAME = "scala";

    // The key that partitions are chosen by names the partition; it is not sent.
    public static final class ByKey implements Partitioner {
        public ByKey(VerifiableProperties ignored) {
        }

        @Override
        public int partition(Object key, int partitions) {
            return (Integer) key;
        }
    }

    // Arguments: producer bootstrap topic partitions records name compression told_file,
    // or reader bootstrap topic partitions records seconds records_file time_ms (-1: none).
    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[3]);
        long records = Long.parseLong(arguments[4]);
        if (arguments[0].equals("producer")) {
            produce(arguments[1], arguments[2], partitions, records, arguments[5], arguments[6]);
            Files.write(Paths.get(arguments[7]), new byte[0]);
        } else {
            long deadline = System.nanoTime() + Long.parseLong(arguments[5]) * 1_000_000_000L;
            read(arguments[1], arguments[2], partitions, records, deadline, arguments[6], Long.parseLong(arguments[7]));
        }
        System.exit(0);
    }

    private static void produce(
            String bootstrap, String topic, int partitions, long records, String name, String compression) {
        Properties settings = new Properties();
        settings.put("metadata.broker.list", bootstrap);
        settings.put("serializer.class", "kafka.serializer.DefaultEncoder");
        settings.put("partitioner.class", ByKey.class.getName());
        settings.put("request.required.acks", "-1");
        settings.put("request.timeout.ms", String.valueOf(PATIENCE_MS));
        settings.put("compression.codec", compression);
        Producer<Object, byte[]> producer = new Producer<>(new ProducerConfig(settings));
        long acked = 0;
        List<String> errors = new ArrayList<>();
        for (long first = 0; first < records / partitions; first += AT_ONCE) {
            List<KeyedMessage<Object, byte[]>> messages = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                for (long number = first; number < Math.min(first + AT_ONCE, records / partitions); number++) {
                    byte[] value = (name + ":" + partition + ":" + number).getBytes(StandardCharsets.UTF_8);
                    messages.add(new KeyedMessage<>(topic, null, partition, value));
                }
            }
            try {
                producer.send(messages);
                acked += messages.size();
            } catch (RuntimeException error) {
                errors.add("\"" + error.toString().replace("\"", "'") + "\"");
            }
        }
        producer.close();
        System.out.println("{\"sent\": " + records + ", \"acked\": " + acked + ", \"failed\": " + (records - acked)
            + ", \"errors\": [" + String.join(", ", errors) + "], \"final\": true}");
    }

    private static void read(
            String bootstrap, String topic, int partitions, long records, long deadline, String file, long time)
            throws Exception {
        SimpleConsumer[] leaders = leaders(bootstrap, topic, partitions);
        long[] next = new long[partitions];
        long read = 0;
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(file), StandardCharsets.UTF_8)) {
            for (int partition = 0; read < records && System.nanoTime() < deadline; partition = (partition + 1) % partitions) {
                FetchResponse answer = leaders[partition].fetch(new FetchRequestBuilder().clientId(NAME)
                    .addFetch(topic, partition, next[partition], FETCH_BYTES).maxWait(100).minBytes(1).build());
                if (answer.hasError()) {
                    throw new IllegalStateException("fetch: error code " + answer.errorCode(topic, partition));
                }
                for (MessageAndOffset one : answer.messageSet(topic, partition)) {
                    if (one.offset() < next[partition]) {
                        continue;
                    }
                    ByteBuffer payload = one.message().payload();
                    byte[] value = new byte[payload.remaining()];
                    payload.get(value);
                    out.write(partition + " " + one.offset() + " " + new String(value, StandardCharsets.UTF_8) + "\n");
                    next[partition] = one.offset() + 1;
                    read++;
                }
            }
        }
        System.out.println("{\"records\": " + read + ", \"ends\": " + offsets(leaders, topic, -1) + ", \"times\": "
            + (time < 0 ? "{}" : offsets(leaders, topic, time)) + ", \"final\": true}");
    }

    private static SimpleConsumer[] leaders(String bootstrap, String topic, int partitions) {
        String[] first = bootstrap.split(",")[0].split(":");
        SimpleConsumer asker = consumer(first[0], Integer.parseInt(first[1]));
        SimpleConsumer[] found = new SimpleConsumer[partitions];
        for (PartitionMetadata one : asker.send(new TopicMetadataRequest(Collections.singletonList(topic)))
                .topicsMetadata().get(0).partitionsMetadata()) {
            found[one.partitionId()] = consumer(one.leader().host(), one.leader().port());
        }
        return found;
    }

    private static SimpleConsumer consumer(String host, int port) {
        return new SimpleConsumer(host, port, PATIENCE_MS, 1 << 16, NAME);
    }

    private static String offsets(SimpleConsumer[] leaders, String topic, long time) {
        TreeMap<Integer, Long> found = new TreeMap<>();
        for (int partition = 0; partition < leaders.length; partition++) {
            Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
            asked.put(new TopicAndPartition(topic, partition), new PartitionOffsetRequestInfo(time, 1));
            OffsetResponse answer = leaders[partition].getOffsetsBefore(
                new OffsetRequest(asked, kafka.api.OffsetRequest.CurrentVersion(), NAME));
            found.put(partition, answer.offsets(topic, partition)[0]);
        }
        StringBuilder shown = new StringBuilder();
        found.forEach((partition, offset) ->
            shown.append(shown.length() == 0 ? "" : ", ").append("\"" + partition + "\": " + offset));
        return "{" + shown + "}";
    }
}
