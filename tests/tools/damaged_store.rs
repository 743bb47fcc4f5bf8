//! A damaged store: what is below sound pages is repaired, what is not is left alone.

use redb::{ReadableTable, TableDefinition};

use super::*;

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Changes rows behind the store's back, with pages that are right.
fn tamper(dir: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let database = redb::Database::open(store_file(dir)).unwrap();
    let mut transaction = database.begin_write().unwrap();
    transaction.set_quick_repair(true);
    change(&transaction);
    transaction.commit().unwrap();
}

/// The name of the table that has the records of [`used`].
fn table_of_done(transaction: &redb::WriteTransaction) -> String {
    use redb::TableHandle;
    let mut names = transaction
        .list_tables()
        .unwrap()
        .map(|table| table.name().to_owned());
    names.find(|name| name.starts_with("done/")).unwrap()
}

fn done(
    transaction: &redb::WriteTransaction,
    change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>),
) {
    let name = table_of_done(transaction);
    let table: redb::TableDefinition<'_, &'static [u8], &'static [u8]> =
        TableDefinition::new(&name);
    change(&mut transaction.open_table(table).unwrap());
}

/// What, how it comes about, what the check says of it, whether the record `s3` is gone after the repair.
type Case = (
    &'static str,
    fn(&redb::WriteTransaction),
    &'static str,
    bool,
);

const CASES: [Case; 5] = [
    (
        "a record that cannot be read",
        |transaction| {
            done(transaction, |table| {
                let mut value = table
                    .get(&b"default\0s3"[..])
                    .unwrap()
                    .unwrap()
                    .value()
                    .to_vec();
                value[8] ^= 1;
                table.insert(&b"default\0s3"[..], value.as_slice()).unwrap();
            });
        },
        "key default\\x00s3: the checksum differs",
        true,
    ),
    (
        "a record lost",
        |transaction| {
            done(transaction, |table| {
                drop(table.remove(&b"default\0s3"[..]).unwrap())
            })
        },
        "counted 9 records",
        true,
    ),
    (
        "a record in the wrong table",
        |transaction| {
            const OPEN: Rows = TableDefinition::new("open");
            done(transaction, |table| {
                let value = table
                    .remove(&b"default\0s3"[..])
                    .unwrap()
                    .unwrap()
                    .value()
                    .to_vec();
                let mut open = transaction.open_table(OPEN).unwrap();
                open.insert(&b"default\0s3"[..], value.as_slice()).unwrap();
            });
        },
        "it does not belong in this table",
        false,
    ),
    (
        "a policy that cannot be read",
        |transaction| {
            const META: Rows = TableDefinition::new("meta");
            let mut meta = transaction.open_table(META).unwrap();
            meta.insert(&b"policy/orders"[..], &b"nonsense"[..])
                .unwrap();
        },
        "key policy/orders: ",
        false,
    ),
    (
        "the counts of a table lost",
        |transaction| {
            const META: Rows = TableDefinition::new("meta");
            let name = [b"table/", table_of_done(transaction).as_bytes()].concat();
            let mut meta = transaction.open_table(META).unwrap();
            assert!(meta.remove(name.as_slice()).unwrap().is_some());
        },
        "a table that `meta` does not know",
        false,
    ),
];

#[test]
fn what_is_damaged_below_sound_pages_goes_and_the_rest_is_there() {
    for (what, change, says, gone) in CASES {
        let folder = tempfile::tempdir().unwrap();
        let dir = used(&folder);
        tamper(&dir, change);
        assert_refused(&dir, what);
        let before = contents(&dir);
        let found = run("check", &dir, &["--repair"]);
        assert_eq!(found.code, 13, "{what}: {found:?}");
        assert!(found.stdout.contains(says), "{what}: {found:?}");
        assert!(contents(&dir) == before, "{what}: it was touched");
        let repaired = run("check", &dir, &["--repair", "--yes"]);
        assert_eq!(repaired.code, 0, "{what}: {repaired:?}");
        let (lost, there): (Vec<String>, Vec<String>) =
            stored().into_iter().partition(|name| gone && name == "s3");
        assert_starts(&dir, &there, &lost, 10, what);
    }
}

#[test]
fn a_damaged_body_goes_and_its_record_stays_also_where_the_journal_goes_on_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let body = vec![7; 20_000];
    let claim = "/v1/claims/default/k?store=true";
    let server = Server::start(&dir);
    let token = server.http().post(claim, &body).json()["token"]
        .as_u64()
        .unwrap();
    assert_eq!(server.term().code(), 0);
    // Renewed: the entry in the journal refers to the payload in the store.
    let server = Server::start(&dir);
    let renewed = server.http().post(
        &format!("/v1/claims/default/k/renew?token={token}&lease=1h"),
        b"",
    );
    assert_eq!(renewed.status, 200);
    server.kill9();
    tamper(&dir, |transaction| {
        const BODY: Rows = TableDefinition::new("body/open");
        let mut table = transaction.open_table(BODY).unwrap();
        let (row, mut value) = {
            let (row, value) = table.pop_first().unwrap().unwrap();
            (row.value().to_vec(), value.value().to_vec())
        };
        value[5000] ^= 1;
        table.insert(row.as_slice(), value.as_slice()).unwrap();
    });
    let repaired = run("check", &dir, &["--repair", "--yes"]);
    assert_eq!(repaired.code, 0, "{repaired:?}");
    assert!(
        repaired.stdout.contains("the body: its record stays"),
        "{repaired:?}"
    );
    let server = Server::start(&dir);
    let record = server.http().get("/v1/claims/default/k").json();
    assert_eq!(record["state"], "pending", "{record}");
    assert_eq!(record["payload"], serde_json::Value::Null, "{record}");
}

#[test]
fn a_damaged_page_or_a_lost_file_is_beyond_repair_and_left_alone() {
    type Damage = fn(&Path);
    let table: [(&str, Damage, &str); 4] = [
        (
            "a page",
            |dir| {
                let path = store_file(dir);
                let bytes = fs::read(&path).unwrap();
                let at = bytes
                    .windows(10)
                    .position(|part| part == b"default\0s3")
                    .unwrap();
                flip(&path, at as u64);
            },
            "restore a backup",
        ),
        (
            "the store",
            |dir| fs::remove_file(store_file(dir)).unwrap(),
            "restore a backup",
        ),
        (
            "all data",
            |dir| fs::remove_dir_all(dir.join("data")).unwrap(),
            "mount it, or restore a backup",
        ),
        (
            "another store's marker",
            |dir| {
                fs::write(
                    dir.join("onced.id"),
                    format!("onced store {}\n", "0".repeat(32)),
                )
                .unwrap()
            },
            "put back what belongs together",
        ),
    ];
    for (what, damage, says) in table {
        let folder = tempfile::tempdir().unwrap();
        let dir = used(&folder);
        damage(&dir);
        assert!(Server::try_start(&dir, &[]).is_err(), "{what}: it started");
        let before = contents(&dir);
        let found = run("check", &dir, &["--repair", "--yes"]);
        assert_eq!(found.code, 13, "{what}: {found:?}");
        assert!(found.stdout.contains(says), "{what}: {found:?}");
        assert!(
            found.stdout.contains("nothing was changed"),
            "{what}: {found:?}"
        );
        assert!(contents(&dir) == before, "{what}: it was touched");
    }
}
