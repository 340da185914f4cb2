// Produces in transactions, each with offsets of a group: every other one is aborted. Then reads the topic as a member of
// a group, with committed records alone. For clients 4.0 and later.
// The last line on standard output is JSON with "final": true.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class TransactionalMover {
    private static final int RECORDS = 50;

    // Arguments: bootstrap, topic, partitions, transactions, group.protocol.
    public static void main(String[] arguments) {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int transactions = Integer.parseInt(arguments[3]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", "mover-" + topic);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int number = 0; number < transactions; number++) {
                boolean isKept = number % 2 == 1;
                producer.beginTransaction();
                for (int index = 0; index < RECORDS; index++) {
                    producer.send(new ProducerRecord<>(topic, index % partitions, null, isKept ? "kept" : "dropped"));
                }
                producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number)),
                        new ConsumerGroupMetadata("moved-" + topic));
                if (isKept) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        Properties reading = new Properties();
        reading.put("bootstrap.servers", arguments[0]);
        reading.put("group.id", "read-" + topic);
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("group.protocol", arguments[4]);
        int kept = 0;
        int dropped = 0;
        long end = System.currentTimeMillis() + 30_000;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (kept < RECORDS * (transactions / 2) && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    kept += one.value().equals("kept") ? 1 : 0;
                    dropped += one.value().equals("kept") ? 0 : 1;
                }
            }
        }
        System.out.println("{\"kept\": " + kept + ", \"dropped\": " + dropped + ", \"final\": true}");
        System.exit(0);
    }
}
