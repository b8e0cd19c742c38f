package conformance;

import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * mqadmin: runs commands of Apache's administration tool inside this process and gives back what each printed.
 *
 * All commands of one request run side by side, since every one spends up to three seconds on ending its own client. They must
 * go to the same name server: the tool keeps that address in one place for the whole process.
 */
final class Admin {
    private static final Object ONE_REQUEST_AT_A_TIME = new Object();
    private static final InheritableThreadLocal<ByteArrayOutputStream> PRINTED = new InheritableThreadLocal<>();

    static void register(Map<String, Agent.Operation> operations) {
        PrintStream others = System.out;
        PrintStream capture = new PrintStream(new OutputStream() {
            @Override
            public void write(int value) {
                OutputStream own = PRINTED.get();
                if (own == null) {
                    others.write(value);
                } else {
                    ((ByteArrayOutputStream) own).write(value);
                }
            }
        }, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        operations.put("mqadmin", Admin::runAll);
    }

    private static Object runAll(Request request) throws Exception {
        synchronized (ONE_REQUEST_AT_A_TIME) {
            forgetCommands();
            List<List<String>> commands = new ArrayList<>();
            List<CompletableFuture<String>> running = new ArrayList<>();
            for (Request command : request.objects("commands")) {
                commands.add(command.texts("args"));
                running.add(start(command.texts("args")));
                Thread.sleep(5);
            }
            List<String> printed = new ArrayList<>();
            for (int i = 0; i < running.size(); i++) {
                String text = running.get(i).get();
                // The tool names its client after the millisecond it starts in: two of them may have met.
                boolean met = text.contains("created before") || text.contains("has created already");
                printed.add(met ? start(commands.get(i)).get() : text);
            }
            return printed;
        }
    }

    /** The tool keeps the objects of its commands, and some of these keep a client that they have shut down. */
    private static void forgetCommands() throws Exception {
        for (Field field : Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup").getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static CompletableFuture<String> start(List<String> words) {
        CompletableFuture<String> result = new CompletableFuture<>();
        new Thread(() -> run(words, result), "mqadmin").start();
        return result;
    }

    /** Found by name: the tool is on the class path of one of the two agents only. */
    private static void run(List<String> words, CompletableFuture<String> result) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PRINTED.set(printed);
        try {
            for (Method method : Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup").getMethods()) {
                if (method.getName().equals("main0")) {
                    method.invoke(null, words.toArray(new String[0]), null);
                }
            }
            result.complete(printed.toString(StandardCharsets.UTF_8));
        } catch (Throwable error) {
            result.completeExceptionally(error);
        }
    }

    private Admin() {
    }
}
