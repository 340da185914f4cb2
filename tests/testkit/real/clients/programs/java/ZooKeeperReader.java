// The consumer of 0.8 and 0.9 that is told of brokers, topics and the members of its group by ZooKeeper. The last line
// on standard output is JSON with "final": true.

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

public final class ZooKeeperReader {
    private static final String SILENCE_MS = "500";

    // Arguments: zookeeper group topic records seconds records_file storage (zookeeper or kafka).
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[2];
        long records = Long.parseLong(arguments[3]);
        long deadline = System.nanoTime() + Long.parseLong(arguments[4]) * 1_000_000_000L;
        Properties settings = new Properties();
        settings.put("zookeeper.connect", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.enable", "false");
        settings.put("offsets.storage", arguments[6]);
        settings.put("consumer.timeout.ms", SILENCE_MS);
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        ConsumerIterator<byte[], byte[]> stream =
            connector.createMessageStreams(Collections.singletonMap(topic, 1)).get(topic).get(0).iterator();
        long read = 0;
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(arguments[5]), StandardCharsets.UTF_8)) {
            while (read < records && System.nanoTime() < deadline) {
                try {
                    MessageAndMetadata<byte[], byte[]> one = stream.next();
                    String value = new String(one.message(), StandardCharsets.UTF_8);
                    out.write(one.partition() + " " + one.offset() + " " + value + "\n");
                    read++;
                } catch (ConsumerTimeoutException silence) {
                    // Until the time is over: the group may still be finding its partitions.
                }
            }
        }
        connector.commitOffsets();
        connector.shutdown();
        System.out.println("{\"records\": " + read + ", \"final\": true}");
        System.exit(0);
    }
}
