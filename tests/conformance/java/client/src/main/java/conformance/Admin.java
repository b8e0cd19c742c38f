package conformance;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

/** mqadmin: runs a command of Apache's administration tool inside this process and gives back what it printed. */
final class Admin {
    private static final Object ONE_AT_A_TIME = new Object();

    static void register(Map<String, Agent.Operation> operations) {
        operations.put("mqadmin", Admin::run);
    }

    /** Found by name: the tool is on the class path of one of the two agents only. */
    private static Object run(Request request) throws Exception {
        List<String> words = request.texts("args");
        synchronized (ONE_AT_A_TIME) {
            PrintStream out = System.out;
            PrintStream err = System.err;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            try {
                Class<?> tool = Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup");
                for (Method method : tool.getMethods()) {
                    if (method.getName().equals("main0")) {
                        method.invoke(null, words.toArray(new String[0]), null);
                    }
                }
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
            return printed.toString(StandardCharsets.UTF_8);
        }
    }

    private Admin() {
    }
}
