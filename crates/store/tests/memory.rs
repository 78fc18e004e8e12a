//! The in-memory store shows the behaviour of every store.
#![cfg(feature = "suite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::sync::Arc;

use toolwright_runtime::MemoryStore;
use toolwright_store::suite::{Fixture, Opened, cases, check, run};

struct Memory;

impl Fixture for Memory {
    fn open(&self) -> Opened<'_> {
        Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn toolwright_runtime::Store>) })
    }

    fn is_shared(&self) -> bool {
        false
    }
}

toolwright_store::store_suite!(Memory);

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_suite_runs_in_one_go() {
    run(async || Memory).await.unwrap();
}

/// Says that it can be opened again, and then has other data.
struct Forgetful;

impl Fixture for Forgetful {
    fn open(&self) -> Opened<'_> {
        Memory.open()
    }
}

/// Can't be opened.
struct Closed;

impl Fixture for Closed {
    fn open(&self) -> Opened<'_> {
        Box::pin(async { Err("the folder is gone".to_owned()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_names_its_case_and_says_what_was_found() {
    let failure = check("journal::a_second_handle_sees_what_was_appended", Forgetful).await.unwrap_err();
    assert_eq!(failure.case(), "journal::a_second_handle_sees_what_was_appended");
    assert!(failure.problem().starts_with("the records that another handle reads: expected [Record"), "{failure}");
    assert!(failure.problem().ends_with("found []"), "{failure}");
    for case in ["lasting::everything_is_there_after_a_restart", "files::entries_come_back_as_they_were", "claims::a_claim_is_exclusive"] {
        let failure = check(case, Forgetful).await.unwrap_err();
        assert_eq!(failure.case(), case);
        let failure = check(case, Closed).await.unwrap_err();
        assert_eq!(failure.problem(), "expected the store to open, found: the folder is gone");
    }
    let failure = check("journal::no_such_case", Memory).await.unwrap_err();
    assert_eq!(failure.to_string(), "journal::no_such_case: there is no such case; `cases` lists them");
}

#[test]
fn cases_have_names_of_their_own() {
    let names: std::collections::BTreeSet<&str> = cases().iter().map(toolwright_store::suite::Case::name).collect();
    assert_eq!(names.len(), cases().len());
    assert!(names.len() >= 60, "{names:?}");
}
