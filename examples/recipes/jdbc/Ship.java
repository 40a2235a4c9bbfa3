import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

public class Ship {
    record Delivery(long id, int order) {}

    public static void main(String[] args) throws SQLException {
        // A connection begins with autocommit: each statement is a transaction of its own.
        try (Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            // The order and its message commit together.
            transaction(db, () -> {
                execute(db, "insert into orders (id, item) values (?, ?)", 7, "lamp");
                execute(db, "select posthaste.send('orders', ?, ?)", "{\"order\": 7}", "{\"reference\": \"order-7\"}");
            });

            for (List<Delivery> deliveries; !(deliveries = receive(db)).isEmpty();) {
                for (Delivery d : deliveries) {
                    try {
                        // The shipment and the acknowledgment commit together.
                        transaction(db, () -> {
                            execute(db, "insert into shipments (order_id) values (?)", d.order());
                            execute(db, "select posthaste.ack(?, '{\"strict\": true}')", d.id());
                        });
                        System.out.println("shipped order " + d.order());
                    } catch (SQLException e) {
                        execute(db, "select posthaste.fail(?, ?)", d.id(), e.toString());
                    }
                }
            }
        }
    }

    static List<Delivery> receive(Connection db) throws SQLException {
        List<Delivery> found = new ArrayList<>();
        try (var s = db.createStatement();
                var rows = s.executeQuery("select delivery_id, payload_json ->> 'order' from posthaste.receive('orders', 10, '1 minute')")) {
            while (rows.next()) {
                found.add(new Delivery(rows.getLong(1), rows.getInt(2)));
            }
        }
        return found;
    }

    interface Work { void run() throws SQLException; }

    static void transaction(Connection db, Work work) throws SQLException {
        db.setAutoCommit(false);
        try {
            work.run();
            db.commit();
        } catch (SQLException e) {
            db.rollback();
            throw e;
        } finally {
            db.setAutoCommit(true);
        }
    }

    static void execute(Connection db, String sql, Object... arguments) throws SQLException {
        try (var s = db.prepareStatement(sql)) {
            for (int i = 0; i < arguments.length; i++) {
                s.setObject(i + 1, arguments[i]);
            }
            s.execute();
        }
    }
}
