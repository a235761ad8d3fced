CREATE TABLE IF NOT EXISTS shop_orders (id text PRIMARY KEY, total numeric NOT NULL, state text NOT NULL);
CREATE TABLE IF NOT EXISTS parcels (order_id text PRIMARY KEY, paid_at timestamptz NOT NULL);
