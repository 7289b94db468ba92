PRAGMA application_id = 1282363969;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE adapter_loads (
            fleet TEXT NOT NULL, replica TEXT NOT NULL, started_at_s REAL NOT NULL, adapter TEXT NOT NULL,
            revision TEXT NOT NULL, PRIMARY KEY (fleet, replica, adapter)
        ) WITHOUT ROWID;
INSERT INTO "adapter_loads" VALUES('fleet','warm-000',2000000.0,'t001','');
CREATE TABLE audit (
            number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, fleet TEXT NOT NULL, actor TEXT NOT NULL,
            action TEXT NOT NULL, subject TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL
        );
INSERT INTO "audit" VALUES(1,2000000.0,'fleet','ann','override.put','tenant/t001','','hot until 2003600: launch day');
INSERT INTO "audit" VALUES(2,2000000.0,'fleet','ann','pause.set','group/warm','none','scale-in until 2000600: load test');
INSERT INTO "audit" VALUES(3,2000000.0,'other','ann','fleet.detach','fleet','managed','uninstalling');
CREATE TABLE checkpoints (
            fleet TEXT PRIMARY KEY, saved_at_s REAL NOT NULL, state TEXT NOT NULL
        ) WITHOUT ROWID;
INSERT INTO "checkpoints" VALUES('fleet',2000000.0,'{"ring":{"budget":100.0,"budget_at_s":1000405.0,"choice":"preferred","departures":{},"epoch":2,"joining_since_s":{},"placement":{"exceptions":{"t000":["s0002","s0000","s0003","s0004"],"t004":["s0003","s0004","s0001"],"t005":["s0003","s0001","s0004"],"t006":["s0003","s0005","s0004"],"t007":["s0004","s0005","s0001"],"t008":["s0005","s0001","s0003"],"t009":["s0003","s0005","s0000"],"t010":["s0004","s0005","s0003"],"t011":["s0005","s0003","s0001"]},"replication":3,"slots":["s0000","s0001","s0002","s0003","s0004","s0005"]},"slots":{"displaced":[],"slots":[{"heir":"","replica":"warm-000","since_s":1000030.0,"slot":"s0000","state":"active"},{"heir":"","replica":"warm-001","since_s":1000030.0,"slot":"s0001","state":"active"},{"heir":"","replica":"warm-002","since_s":1000030.0,"slot":"s0002","state":"active"},{"heir":"","replica":"warm-003","since_s":1000030.0,"slot":"s0003","state":"active"},{"heir":"","replica":"warm-004","since_s":1000345.0,"slot":"s0004","state":"active"},{"heir":"","replica":"warm-005","since_s":1000345.0,"slot":"s0005","state":"active"}]}},"scaling":{"changes_s":[1000285.0],"groups":{"warm":{"capacity":{"at_s":1000405.0,"proven_tokens_per_s":997.1160533345893,"queued_since_s":null,"samples":3,"tokens_per_s":1333.3333333333335},"contradicted_since_s":null,"current":6,"first_seen_s":1000015.0,"idle_since_s":null,"needs":[[1000405.0,6]],"pending_since_s":null}},"version":1},"tiering":{"columns":{"keys":"eJwBYACf/4E4BD6Fyialyaa7vmZe0a7KtBssZCRPzgQxl7Dw6PUJ1xGG79doXibx8qH2ZDMM7InuNfLxpAYDy/0c9EWY3Ch6e3SJYNENh8p5YZSWGQXUzYLznpWUQgmKgsetxM+NJnu6Mqw=","missed_ticks":"eJxjYMAOAAAYAAE=","quiet_since_s":"eJxjYACBD/UMNKIBEfERNQ==","quiet_ticks":"eJxjYMAOAAAYAAE=","reason":"eJzjZeDFCgEIBACd","since_s":"eJxjYGBgmNei58hAIxoAcykSzQ==","tier":"eJxjZEQAAABaAA0=","wrong":"eJxjYEAAAAAMAAE="},"displaced":{},"fewer_since_s":"inf","last_tick_s":"0x1.e87aa00000000p+19","slots":42,"version":1},"version":1}');
CREATE TABLE decisions (
            number INTEGER PRIMARY KEY AUTOINCREMENT, fleet TEXT NOT NULL, id TEXT NOT NULL, subject TEXT NOT NULL,
            record TEXT NOT NULL, UNIQUE (fleet, id)
        );
CREATE TABLE detachments (
            fleet TEXT PRIMARY KEY, actor TEXT NOT NULL, reason TEXT NOT NULL, at_s REAL NOT NULL
        ) WITHOUT ROWID;
INSERT INTO "detachments" VALUES('other','ann','uninstalling',2000000.0);
CREATE TABLE overrides (
            fleet TEXT NOT NULL, tenant TEXT NOT NULL, tier TEXT NOT NULL, reason TEXT NOT NULL, actor TEXT NOT NULL,
            created_at_s REAL NOT NULL, expires_at_s REAL NOT NULL, revision INTEGER NOT NULL, cleared INTEGER NOT NULL,
            PRIMARY KEY (fleet, tenant)
        ) WITHOUT ROWID;
INSERT INTO "overrides" VALUES('fleet','t001','hot','launch day','ann',2000000.0,2003600.0,1,0);
CREATE TABLE pauses (
            fleet TEXT NOT NULL, grouped TEXT NOT NULL, mode TEXT NOT NULL, reason TEXT NOT NULL,
            expires_at_s REAL NOT NULL, PRIMARY KEY (fleet, grouped)
        ) WITHOUT ROWID;
INSERT INTO "pauses" VALUES('fleet','warm','scale-in','load test',2000600.0);
CREATE TABLE proposals (
            number INTEGER PRIMARY KEY AUTOINCREMENT, fleet TEXT NOT NULL, key TEXT NOT NULL, subject TEXT NOT NULL,
            before TEXT NOT NULL, after TEXT NOT NULL, message TEXT NOT NULL, state TEXT NOT NULL,
            created_at_s REAL NOT NULL, actor TEXT NOT NULL, until_s REAL NOT NULL
        );
CREATE INDEX decisions_by_subject ON decisions (fleet, subject, number);
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
            BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE INDEX proposals_by_key ON proposals (fleet, key);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',3);
COMMIT;
