package conformance;

import org.apache.rocketmq.remoting.RPCHook;

/** The optional fields accessKey and secretKey of the operations that start a client. */
final class Credentials {
    private static final String PACKAGE = "org.apache.rocketmq.acl.common.";

    /**
     * The hook that signs requests, or null without an access key.
     *
     * Found by name: in 4.9 the class is in a library of its own, which only agents with mqadmin have.
     */
    static RPCHook hook(Request request) throws ReflectiveOperationException {
        if (!request.has("accessKey")) {
            return null;
        }
        Class<?> credentials = Class.forName(PACKAGE + "SessionCredentials");
        Object keys = credentials.getConstructor(String.class, String.class)
            .newInstance(request.text("accessKey"), request.text("secretKey"));
        return (RPCHook) Class.forName(PACKAGE + "AclClientRPCHook").getConstructor(credentials).newInstance(keys);
    }

    private Credentials() {
    }
}
