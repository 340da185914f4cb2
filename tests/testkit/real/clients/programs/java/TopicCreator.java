// Creates topics and leaves the numbers of partitions and replicas to the broker, first only to see whether it could.
// For clients 2.4 and later. The last line on standard output is JSON with "final": true.

import java.util.Collections;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;

public final class TopicCreator {
    // Arguments: bootstrap topic.
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        String name = arguments[1];
        try (Admin admin = Admin.create(settings)) {
            NewTopic topic = new NewTopic(name, Optional.empty(), Optional.empty());
            for (boolean validateOnly : new boolean[] {true, false}) {
                CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(validateOnly);
                admin.createTopics(Collections.singleton(topic), options).all().get(30, TimeUnit.SECONDS);
                boolean isThere = isListed(admin, name);
                // A slow broker tells of a new topic late. What was only validated is not looked for again.
                for (int tries = 0; !isThere && !validateOnly && tries < 100; tries++) {
                    Thread.sleep(100);
                    isThere = isListed(admin, name);
                }
                if (isThere == validateOnly) {
                    throw new IllegalStateException("validate only: " + validateOnly + ", there: " + isThere);
                }
            }
        }
        System.out.println("{\"created\": \"" + name + "\", \"final\": true}");
        System.exit(0);
    }

    private static boolean isListed(Admin admin, String name) throws Exception {
        return admin.listTopics().names().get(30, TimeUnit.SECONDS).contains(name);
    }
}
