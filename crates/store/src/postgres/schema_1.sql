-- Version 1 of the schema. Names are resolved by the search path, which is this schema alone.
--
-- Ids are compared byte by byte: text columns that are compared have the collation "C"; keys and paths are bytes. Payloads
-- are text or bytes exactly as given, never JSONB, which would reorder keys and round numbers.

-- Who may move a thread, and where its journal ends. A row outlives its thread, so that a fencing number is never used twice.
-- `beat` is the owner's last sign of life, in microseconds by the server's clock.
CREATE TABLE claims (
    thread TEXT COLLATE "C" PRIMARY KEY,
    generation BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    beat BIGINT NOT NULL,
    head BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE records (
    thread TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (thread, seq)
);

CREATE TABLE snapshots (
    thread TEXT COLLATE "C" PRIMARY KEY,
    at BIGINT NOT NULL,
    body TEXT NOT NULL
);

-- The index of threads.
CREATE TABLE threads (
    id TEXT COLLATE "C" PRIMARY KEY,
    agent TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    title TEXT COLLATE "C" NOT NULL,
    -- The id and the title in lower case, as Rust makes it: the server's own idea depends on its locale.
    id_lower TEXT COLLATE "C" NOT NULL,
    title_lower TEXT COLLATE "C" NOT NULL,
    parent TEXT COLLATE "C",
    forked_from TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    head BIGINT NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX threads_changed ON threads (changed_at, id);
CREATE INDEX threads_open ON threads (status, changed_at, id) WHERE status <> 'finished';
CREATE INDEX threads_children ON threads (parent, changed_at, id) WHERE parent IS NOT NULL;
CREATE INDEX threads_moving ON threads (id) WHERE status = 'in-progress';

-- Decisions that are pending. `id` is the decision's.
CREATE TABLE pending (
    thread TEXT COLLATE "C" NOT NULL,
    call BYTEA NOT NULL,
    id BYTEA NOT NULL,
    asked_at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (thread, call)
);
CREATE INDEX pending_asked ON pending (asked_at, id);
CREATE INDEX pending_of_thread ON pending (thread, asked_at, id);

-- The last position of each inbox. Whoever posts holds this row until the post is visible, so that positions become visible in
-- their order.
CREATE TABLE inboxes (
    thread TEXT COLLATE "C" PRIMARY KEY,
    last BIGINT NOT NULL
) WITH (fillfactor = 50);

-- What was posted. Taken items stay, for their keys. `token` tells a poster that lost its connection its own item.
CREATE TABLE inbox (
    thread TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    key BYTEA NOT NULL,
    token TEXT NOT NULL,
    item TEXT NOT NULL,
    taken BOOLEAN NOT NULL,
    PRIMARY KEY (thread, position),
    UNIQUE (thread, key)
);
CREATE INDEX inbox_waiting ON inbox (thread, position) WHERE NOT taken;

CREATE TABLE timers (
    thread TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    at BIGINT NOT NULL,
    item TEXT NOT NULL,
    PRIMARY KEY (thread, key)
);
CREATE INDEX timers_due ON timers (at, thread, key);

-- Keyed values and the environment.
CREATE TABLE shelves (
    thread TEXT COLLATE "C" NOT NULL,
    shelf TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (thread, shelf, key)
);

CREATE TABLE files (
    thread TEXT COLLATE "C" NOT NULL,
    path BYTEA NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (thread, path)
);

-- Content by its address, once for all threads, and which thread keeps what.
CREATE TABLE blobs (
    id TEXT COLLATE "C" PRIMARY KEY,
    bytes BYTEA NOT NULL
);
CREATE TABLE kept (
    thread TEXT COLLATE "C" NOT NULL,
    blob TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (thread, blob)
);
CREATE INDEX kept_by ON kept (blob);

CREATE FUNCTION now_micros() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT
$$;

-- The row of a thread's claims, made if there is none, and how long ago its owner gave a sign of life.
CREATE FUNCTION claim_row(_thread TEXT) RETURNS TABLE (generation BIGINT, fence BIGINT, beat BIGINT, age BIGINT)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM claims WHERE thread = _thread) THEN
        INSERT INTO claims (thread, generation, fence, beat, head) VALUES (_thread, 0, 0, 0, 0) ON CONFLICT DO NOTHING;
    END IF;
    RETURN QUERY SELECT c.generation, c.fence, c.beat, now_micros() - c.beat FROM claims c WHERE c.thread = _thread;
END $$;

-- Whether a write under this fencing number may go on. The lock on the row keeps a later owner out until the write is done.
CREATE FUNCTION held(_thread TEXT, _fence BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    IF _fence IS NULL THEN
        RETURN TRUE;
    END IF;
    PERFORM 1 FROM claims WHERE thread = _thread AND fence = _fence FOR SHARE;
    RETURN FOUND;
END $$;

-- Appends records, with what they change in the index and what is taken from the inbox. Says `written`, `fenced` or `conflict`,
-- and where the journal ends.
CREATE FUNCTION append(
    _thread TEXT, _fence BIGINT, _expected BIGINT, _bodies TEXT[], _through BIGINT,
    -- How the thread came to be; NULL where these records do not open it.
    _agent TEXT, _parent TEXT, _opened_at BIGINT,
    _changed_at BIGINT, _status TEXT, _title TEXT, _id_lower TEXT, _title_lower TEXT, _forked_from TEXT,
    _all_settled BOOLEAN, _settled BYTEA[], _calls BYTEA[], _ids BYTEA[], _asked_at BIGINT[], _asked TEXT[]
) RETURNS TABLE (outcome TEXT, head BIGINT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _head BIGINT;
    _owner BIGINT;
    _count BIGINT := cardinality(_bodies);
BEGIN
    UPDATE claims SET head = claims.head + _count, beat = now_micros()
        WHERE thread = _thread AND fence = _fence AND claims.head = _expected
        RETURNING claims.head INTO _head;
    IF NOT FOUND THEN
        SELECT c.fence, c.head INTO _owner, _head FROM claims c WHERE c.thread = _thread;
        IF _owner IS DISTINCT FROM _fence THEN
            RETURN QUERY SELECT 'fenced'::TEXT, coalesce(_head, 0);
        ELSE
            RETURN QUERY SELECT 'conflict'::TEXT, _head;
        END IF;
        RETURN;
    END IF;
    INSERT INTO records (thread, seq, body)
        SELECT _thread, _expected + given.n, given.body FROM unnest(_bodies) WITH ORDINALITY AS given (body, n);
    IF _through > 0 THEN
        UPDATE inbox SET taken = TRUE WHERE thread = _thread AND NOT taken AND position <= _through;
    END IF;
    IF _agent IS NOT NULL THEN
        INSERT INTO threads (id, agent, status, title, id_lower, title_lower, parent, forked_from, created_at, changed_at, head)
            VALUES (
                _thread, _agent, coalesce(_status, 'finished'), coalesce(_title, ''), _id_lower, coalesce(_title_lower, ''), _parent,
                _forked_from, _opened_at, coalesce(_changed_at, _opened_at), _head
            )
            ON CONFLICT (id) DO UPDATE SET
                agent = excluded.agent, status = excluded.status, title = excluded.title, title_lower = excluded.title_lower,
                parent = excluded.parent, forked_from = excluded.forked_from, created_at = excluded.created_at,
                changed_at = excluded.changed_at, head = excluded.head;
    ELSIF _count > 0 THEN
        UPDATE threads SET
            head = _head,
            changed_at = coalesce(_changed_at, changed_at),
            -- A fork copies the records of its source in an append of their own: what waited there does not wait here.
            status = coalesce(_status, CASE WHEN _all_settled AND status = 'awaiting-approval' THEN 'in-progress' ELSE status END),
            title = CASE WHEN title = '' THEN coalesce(_title, '') ELSE title END,
            title_lower = CASE WHEN title = '' THEN coalesce(_title_lower, '') ELSE title_lower END,
            forked_from = coalesce(_forked_from, forked_from)
            WHERE id = _thread;
    END IF;
    IF _all_settled THEN
        DELETE FROM pending WHERE thread = _thread;
    ELSIF cardinality(_settled) > 0 THEN
        DELETE FROM pending WHERE thread = _thread AND call = ANY (_settled);
    END IF;
    IF cardinality(_calls) > 0 THEN
        INSERT INTO pending (thread, call, id, asked_at, body)
            SELECT _thread, given.* FROM unnest(_calls, _ids, _asked_at, _asked) AS given (call, id, asked_at, body)
            ON CONFLICT (thread, call) DO UPDATE SET id = excluded.id, asked_at = excluded.asked_at, body = excluded.body;
    END IF;
    RETURN QUERY SELECT 'written'::TEXT, _head;
END $$;

CREATE FUNCTION save_snapshot(_thread TEXT, _fence BIGINT, _at BIGINT, _body TEXT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    IF NOT held(_thread, _fence) THEN
        RETURN FALSE;
    END IF;
    INSERT INTO snapshots (thread, at, body) VALUES (_thread, _at, _body)
        ON CONFLICT (thread) DO UPDATE SET at = excluded.at, body = excluded.body;
    RETURN TRUE;
END $$;

-- Posts an item. Gives the first item of its key and that one's token, if there was one before.
CREATE FUNCTION post(_thread TEXT, _key BYTEA, _token TEXT, _item TEXT) RETURNS TABLE (item TEXT, token TEXT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _position BIGINT;
BEGIN
    -- Once without the lock, for those who come late, and once under it.
    RETURN QUERY SELECT i.item, i.token FROM inbox i WHERE i.thread = _thread AND i.key = _key;
    IF FOUND THEN
        RETURN;
    END IF;
    INSERT INTO inboxes (thread, last) VALUES (_thread, 1)
        ON CONFLICT (thread) DO UPDATE SET last = inboxes.last + 1
        RETURNING last INTO _position;
    RETURN QUERY SELECT i.item, i.token FROM inbox i WHERE i.thread = _thread AND i.key = _key;
    IF FOUND THEN
        RETURN;
    END IF;
    INSERT INTO inbox (thread, position, key, token, item, taken) VALUES (_thread, _position, _key, _token, _item, FALSE);
END $$;

-- Posts the timers that are due, each once whoever calls, and gives their threads. All of them are locked before the first
-- inbox is, and the inboxes in the order of their threads, so that two callers can't wait for each other.
CREATE FUNCTION post_due(_now BIGINT, _limit BIGINT, _channel TEXT) RETURNS SETOF TEXT LANGUAGE plpgsql AS $$
DECLARE
    _due timers[];
    _timer timers;
BEGIN
    WITH chosen AS (
        SELECT t.thread, t.key FROM timers t WHERE t.at <= _now ORDER BY t.at, t.thread, t.key LIMIT _limit FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM timers t USING chosen c WHERE t.thread = c.thread AND t.key = c.key RETURNING t.*
    )
    SELECT array_agg(gone::timers) INTO _due FROM gone;
    FOR _timer IN SELECT d.* FROM unnest(_due) AS d ORDER BY d.thread, d.at, d.key LOOP
        PERFORM post(_timer.thread, _timer.key, '', _timer.item);
        PERFORM pg_notify(_channel, 'posted ' || _timer.thread);
    END LOOP;
    RETURN QUERY SELECT d.thread FROM unnest(_due) AS d ORDER BY d.at, d.thread, d.key;
END $$;

-- Takes a timer back. Where an earlier try may have done it already, one that has not been posted counts as taken back.
CREATE FUNCTION cancel_timer(_thread TEXT, _key BYTEA, _again BOOLEAN) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM timers WHERE thread = _thread AND key = _key;
    RETURN FOUND OR (_again AND NOT EXISTS (SELECT FROM inbox WHERE thread = _thread AND key = _key));
END $$;

CREATE FUNCTION set_value(_thread TEXT, _fence BIGINT, _shelf TEXT, _key BYTEA, _value TEXT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
BEGIN
    IF NOT held(_thread, _fence) THEN
        RETURN FALSE;
    END IF;
    IF _value IS NULL THEN
        DELETE FROM shelves WHERE thread = _thread AND shelf = _shelf AND key = _key;
    ELSE
        INSERT INTO shelves (thread, shelf, key, value) VALUES (_thread, _shelf, _key, _value)
            ON CONFLICT (thread, shelf, key) DO UPDATE SET value = excluded.value;
    END IF;
    RETURN TRUE;
END $$;

-- Keeps content for a thread. Without bytes it says `unknown` where the store does not have them yet. The lock on the content's
-- row keeps it from being removed with the last thread that kept it.
CREATE FUNCTION keep_blob(_thread TEXT, _fence BIGINT, _blob TEXT, _bytes BYTEA) RETURNS TEXT LANGUAGE plpgsql AS $$
BEGIN
    IF NOT held(_thread, _fence) THEN
        RETURN 'fenced';
    END IF;
    LOOP
        PERFORM 1 FROM blobs WHERE id = _blob FOR KEY SHARE;
        EXIT WHEN FOUND;
        IF _bytes IS NULL THEN
            RETURN 'unknown';
        END IF;
        INSERT INTO blobs (id, bytes) VALUES (_blob, _bytes) ON CONFLICT DO NOTHING;
    END LOOP;
    INSERT INTO kept (thread, blob) VALUES (_thread, _blob) ON CONFLICT DO NOTHING;
    RETURN 'kept';
END $$;

-- Changes files: an entry of NULL removes its path. Paths ascend, so that two callers can't wait for each other. Says `changed`,
-- `fenced`, or `missing` and the place of the first of `_blobs` that the thread does not keep.
CREATE FUNCTION change_files(_thread TEXT, _fence BIGINT, _paths BYTEA[], _entries TEXT[], _blobs TEXT[])
RETURNS TABLE (outcome TEXT, place BIGINT) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _missing BIGINT;
BEGIN
    IF NOT held(_thread, _fence) THEN
        RETURN QUERY SELECT 'fenced'::TEXT, 0::BIGINT;
        RETURN;
    END IF;
    SELECT min(b.n) INTO _missing FROM unnest(_blobs) WITH ORDINALITY AS b (blob, n)
        WHERE NOT EXISTS (SELECT FROM kept k WHERE k.thread = _thread AND k.blob = b.blob);
    IF _missing IS NOT NULL THEN
        RETURN QUERY SELECT 'missing'::TEXT, _missing;
        RETURN;
    END IF;
    DELETE FROM files f USING unnest(_paths, _entries) AS c (path, entry)
        WHERE f.thread = _thread AND f.path = c.path AND c.entry IS NULL;
    INSERT INTO files (thread, path, entry)
        SELECT _thread, c.path, c.entry FROM unnest(_paths, _entries) AS c (path, entry) WHERE c.entry IS NOT NULL
        ON CONFLICT (thread, path) DO UPDATE SET entry = excluded.entry;
    RETURN QUERY SELECT 'changed'::TEXT, 0::BIGINT;
END $$;

-- Gives one thread what another keeps, as it is at one moment: one statement sees one moment. The lock keeps the other from
-- being deleted meanwhile.
CREATE FUNCTION copy_kept(_from TEXT, _to TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    IF _from = _to THEN
        RETURN;
    END IF;
    PERFORM claim_row(_from);
    PERFORM 1 FROM claims WHERE thread = _from FOR SHARE;
    WITH content AS (
        INSERT INTO kept (thread, blob) SELECT _to, k.blob FROM kept k WHERE k.thread = _from ON CONFLICT DO NOTHING
    ), shelved AS (
        INSERT INTO shelves (thread, shelf, key, value) SELECT _to, s.shelf, s.key, s.value FROM shelves s WHERE s.thread = _from
            ON CONFLICT (thread, shelf, key) DO UPDATE SET value = excluded.value
    )
    INSERT INTO files (thread, path, entry) SELECT _to, f.path, f.entry FROM files f WHERE f.thread = _from
        ON CONFLICT (thread, path) DO UPDATE SET entry = excluded.entry;
END $$;

-- Deletes a thread but for its row of claims. Timers go before the inbox, in the order in which `post_due` locks them.
CREATE FUNCTION delete_thread(_thread TEXT, _fence BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    _blobs TEXT[];
BEGIN
    UPDATE claims SET head = 0, beat = now_micros() WHERE thread = _thread AND fence = _fence;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    DELETE FROM timers WHERE thread = _thread;
    -- First the row that posts wait for, then, in a statement that sees what they wrote, the items.
    DELETE FROM inboxes WHERE thread = _thread;
    DELETE FROM inbox WHERE thread = _thread;
    DELETE FROM records WHERE thread = _thread;
    DELETE FROM snapshots WHERE thread = _thread;
    DELETE FROM pending WHERE thread = _thread;
    DELETE FROM threads WHERE id = _thread;
    DELETE FROM shelves WHERE thread = _thread;
    DELETE FROM files WHERE thread = _thread;
    WITH gone AS (DELETE FROM kept WHERE thread = _thread RETURNING blob) SELECT array_agg(blob) INTO _blobs FROM gone;
    IF _blobs IS NOT NULL THEN
        -- Nobody can begin to keep what is locked here; the next statement sees who began before.
        PERFORM 1 FROM blobs WHERE id = ANY (_blobs) ORDER BY id FOR UPDATE;
        DELETE FROM blobs b WHERE b.id = ANY (_blobs) AND NOT EXISTS (SELECT FROM kept k WHERE k.blob = b.id);
    END IF;
    RETURN TRUE;
END $$;
