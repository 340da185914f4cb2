// Runs Kafka's own command line tools one after the other in one Java machine, as bin/kafka-*.sh do in one each.
// Needs the class path of the tools. A line of JSON for each on standard output: exit code, out, err.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

public final class ToolRunner {
    private static final int HANGS = -1;
    private static final int NOT_THERE = -2;
    private static volatile CompletableFuture<Integer> code;

    // Arguments: a file of commands, and how many seconds each may take. A line of the file: classes that may have the
    // tool, separated by commas; standard input; then its arguments. All separated by tabs; \n in the input is a new line.
    public static void main(String[] arguments) throws Exception {
        PrintStream told = System.out;
        Swapped out = new Swapped();
        Swapped err = new Swapped();
        System.setOut(new PrintStream(out, true, "UTF-8"));  // once: Scala's Console keeps what it finds first
        System.setErr(new PrintStream(err, true, "UTF-8"));
        Exit.setExitProcedure((code, message) -> leave(code));
        Exit.setHaltProcedure((code, message) -> leave(code));
        for (String line : Files.readAllLines(Paths.get(arguments[0]), StandardCharsets.UTF_8)) {
            String[] parts = line.split("\t", -1);
            System.setIn(new ByteArrayInputStream(parts[1].replace("\\n", "\n").getBytes(StandardCharsets.UTF_8)));
            out.begin();
            err.begin();
            String[] given = Arrays.copyOfRange(parts, 2, parts.length);
            int code = run(Arrays.asList(parts[0].split(",")), given, Long.parseLong(arguments[1]) * 1000);
            told.println("{\"exit\": " + code + ", \"out\": " + quoted(out) + ", \"err\": " + quoted(err) + "}");
            told.flush();
        }
        Runtime.getRuntime().halt(0);  // threads of tools that did not end
    }

    private static int run(List<String> classes, String[] given, long milliseconds) throws Exception {
        Class<?> tool = null;
        for (String name : classes) {
            try {
                tool = Class.forName(name);
                break;
            } catch (ClassNotFoundException another) {
                continue;
            }
        }
        if (tool == null) {
            return NOT_THERE;
        }
        Class<?> chosen = tool;
        code = new CompletableFuture<>();
        Set<Thread> before = hooks();
        Thread thread = new Thread(() -> code.complete(ended(chosen, given)), "tool");
        thread.setDaemon(true);
        thread.start();
        int found;
        try {
            found = code.get(milliseconds, TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            return HANGS;
        }
        Set<Thread> added = hooks();
        added.removeAll(before);
        for (Thread hook : added) {
            Runtime.getRuntime().removeShutdownHook(hook);
            hook.start();
            hook.join(milliseconds);
        }
        return found;
    }

    // What is run when the Java machine ends. Needs --add-opens java.base/java.lang=ALL-UNNAMED.
    private static Set<Thread> hooks() throws ReflectiveOperationException {
        Field all = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        all.setAccessible(true);
        return new HashSet<>(((Map<?, ?>) all.get(null)).keySet().stream().map(Thread.class::cast).toList());
    }

    // Like System.exit, it never returns: not into a catch or finally of the tool either.
    private static void leave(int exitCode) {
        code.complete(exitCode);
        while (true) {
            LockSupport.park();
        }
    }

    private static int ended(Class<?> tool, String[] given) {
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) given);
            return 0;
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace();
            return NOT_THERE;
        }
    }

    private static String quoted(Swapped written) {
        StringBuilder found = new StringBuilder("\"");
        for (char one : written.text().toCharArray()) {
            if (one == '"' || one == '\\') {
                found.append('\\').append(one);
            } else if (one < ' ') {
                found.append(String.format("\\u%04x", (int) one));
            } else {
                found.append(one);
            }
        }
        return found + "\"";
    }

    private static final class Swapped extends OutputStream {
        private ByteArrayOutputStream written = new ByteArrayOutputStream();

        synchronized void begin() {
            written = new ByteArrayOutputStream();
        }

        synchronized String text() {
            return new String(written.toByteArray(), StandardCharsets.UTF_8);
        }

        @Override
        public synchronized void write(int one) {
            written.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int size) {
            written.write(bytes, start, size);
        }
    }
}
