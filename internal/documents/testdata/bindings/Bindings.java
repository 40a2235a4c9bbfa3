// Calls with each value that the table in docs/guides/sql-from-your-language.md names.
import java.sql.DriverManager;
import java.time.OffsetDateTime;

public class Bindings {
    public static void main(String[] args) throws Exception {
        try (var db = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            try (var s = db.prepareStatement("select posthaste.send('orders', ?)")) {
                s.setString(1, "{\"order\": 7}");
                s.execute();
            }
            long id;
            try (var s = db.prepareStatement("select posthaste.send('orders', ?, ?)")) {
                s.setString(1, "{\"a\": 1}");
                s.setString(2, "{\"delay\": \"1 hour\"}");
                try (var rows = s.executeQuery()) {
                    rows.next();
                    id = rows.getLong(1);
                }
            }
            for (Object ids : new Object[] {5L, 5, (short) 5, "5", db.createArrayOf("bigint", new Long[] {5L, 6L})}) {
                try (var s = db.prepareStatement("select posthaste.ack(?)")) {
                    s.setObject(1, ids);
                    s.execute();
                }
            }
            try (var s = db.prepareStatement("select posthaste.reschedule(?, ?)")) {
                s.setLong(1, id);
                s.setObject(2, OffsetDateTime.parse("2999-01-01T00:00:00Z"));
                s.execute();
            }
            try (var s = db.prepareStatement("select posthaste.receive(?, ?, interval '1 minute')")) {
                s.setString(1, "orders");
                s.setInt(2, 10);
                s.execute();
            }
        }
        System.out.println("all calls work");
    }
}
