import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * Asks Apache's own SQL filter. Every line of standard input is {"expression": text, "properties": [stored text of a message, ...]};
 * every line of output is {"verdicts": one letter for each message} or {"error": why the expression does not compile}.
 * T: true, the message is delivered. F: false. N: null. E: evaluation failed.
 */
public final class SqlVerdicts {
    public static void main(String[] args) throws Exception {
        Gson gson = new Gson();
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(gson.toJson(answer(gson.fromJson(line, JsonObject.class))));
        }
        out.flush();
    }

    private static JsonObject answer(JsonObject request) {
        JsonObject answer = new JsonObject();
        try {
            Expression compiled = FilterFactory.INSTANCE.get("SQL92").compile(request.get("expression").getAsString());
            StringBuilder verdicts = new StringBuilder();
            for (JsonElement properties : request.getAsJsonArray("properties")) {
                verdicts.append(verdict(compiled, properties.getAsString()));
            }
            answer.addProperty("verdicts", verdicts.toString());
        } catch (MQFilterException error) {
            answer.addProperty("error", String.valueOf(error.getCause() == null ? error : error.getCause()));
        }
        return answer;
    }

    private static char verdict(Expression compiled, String properties) {
        try {
            Object value = compiled.evaluate(new MessageEvaluationContext(MessageDecoder.string2messageProperties(properties)));
            if (value == null) {
                return 'N';
            }
            return Boolean.TRUE.equals(value) ? 'T' : 'F';
        } catch (Throwable error) {
            return 'E';
        }
    }
}
