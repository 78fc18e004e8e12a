//! The behaviour that every store has to show.
//!
//! Each promise in the docs of [`Store`] and [`DataStore`](toolwright_runtime::DataStore) is a case here; a store that passes
//! them all answers as the others do. A store of one's own is tested like this, in a file under `tests/`:
//!
//! ```
//! use std::sync::Arc;
//! use toolwright_runtime::{MemoryStore, Store};
//! use toolwright_store::suite::{Fixture, Opened};
//!
//! struct Memory;
//!
//! impl Fixture for Memory {
//!     fn open(&self) -> Opened<'_> {
//!         Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>) })
//!     }
//!
//!     fn is_shared(&self) -> bool {
//!         false // Opened again, it is another store.
//!     }
//! }
//!
//! toolwright_store::store_suite!(Memory);
//! # fn main() {}
//! ```
//!
//! The expression is evaluated anew for each case, inside an async function that returns a `Result`, and has to give a place
//! where nothing is kept yet. The crate that uses the macro needs `tokio` with the features `macros` and `rt-multi-thread`.
//!
//! No case waits for a time to pass, but for those that wait for an owner's silence: each wait is for something to happen, and
//! fails by name after [`DEADLINE`].

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use toolwright_core::{Seq, ThreadId};
use toolwright_runtime::{Append, Claim, Store, StoreError};

mod agreement;
mod claims;
mod data;
mod decisions;
mod files;
mod inbox;
mod index;
mod journal;
mod lasting;
mod script;
mod timers;
mod trees;

/// How long a case waits for something that has to happen.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How long a case may take in all. More than [`DEADLINE`], because some write much.
const CASE_LIMIT: Duration = Duration::from_secs(120);

/// A store that was opened, or one sentence that says why it was not.
pub type Opened<'a> = BoxFuture<'a, Result<Arc<dyn Store>, String>>;

/// A place where one store keeps its data: a folder, a database, a piece of memory. Dropping it removes the data.
pub trait Fixture: Send + Sync + 'static {
    /// Opens the store here. Called again while the first is open, it stands for another process: the two share nothing but
    /// the data. Called again once the first is dropped, it stands for a restart.
    fn open(&self) -> Opened<'_>;

    /// Whether opening again finds the same data. A store in memory says no; it is then its own second handle.
    fn is_shared(&self) -> bool {
        true
    }

    /// Opens the store as [`Fixture::open`] does, with this [`Store::claim_limit`]. `None` if it never puts another in the
    /// place of a silent owner.
    fn open_with_limit(&self, limit: Duration) -> Option<Opened<'_>> {
        let _ = limit;
        None
    }
}

/// What a case found wrong: which case, and one sentence.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    case: String,
    problem: String,
}

impl Failure {
    fn new(problem: impl Into<String>) -> Self {
        Self { case: String::new(), problem: problem.into() }
    }

    fn of(mut self, case: &str) -> Self {
        case.clone_into(&mut self.case);
        self
    }

    /// The case's name.
    pub fn case(&self) -> &str {
        &self.case
    }

    /// What is wrong, in one sentence.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.problem)
    }
}

// What a test that returns it prints.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(format!("expected an answer, found the error: {error}"))
    }
}

/// What a case says.
type Verdict = Result<(), Failure>;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    body: fn(Subject) -> BoxFuture<'static, Verdict>,
}

impl Case {
    /// Its name: the part of the contract, and the promise.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it over a place where nothing is kept yet.
    pub async fn run(&self, fixture: impl Fixture) -> Result<(), Failure> {
        let fixture: Arc<dyn Fixture> = Arc::new(fixture);
        let body = async {
            let store = open(&*fixture).await?;
            (self.body)(Subject { fixture: Arc::clone(&fixture), store }).await
        };
        let ended = tokio::time::timeout(CASE_LIMIT, body).await;
        ended
            .unwrap_or_else(|_| Err(Failure::new(format!("expected an end, found none within {CASE_LIMIT:?}"))))
            .map_err(|failure| failure.of(self.name))
    }
}

/// Every case, by its name.
pub fn cases() -> &'static [Case] {
    CASES
}

/// Runs one case, by its name.
pub async fn check(name: &str, fixture: impl Fixture) -> Result<(), Failure> {
    match CASES.iter().find(|case| case.name == name) {
        Some(case) => case.run(fixture).await,
        None => Err(Failure::new("there is no such case; `cases` lists them").of(name)),
    }
}

/// Runs every case, each over a place of its own, and gives what failed.
pub async fn run<F, Made>(mut fixture: impl FnMut() -> Made) -> Result<(), Vec<Failure>>
where
    F: Fixture,
    Made: Future<Output = F>,
{
    let mut failures = Vec::new();
    for case in CASES {
        if let Err(failure) = case.run(fixture().await).await {
            failures.push(failure);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// One test for each case of the suite, over the fixture that the expression gives; see [`suite`](crate::suite).
#[macro_export]
macro_rules! store_suite {
    ($fixture:expr) => {
        $crate::__store_suite_cases! { [$crate::__store_suite_tests] [$fixture] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_tests {
    ([$fixture:expr] $($part:ident { $($case:ident)* })*) => {
        $(mod $part {
            #[allow(unused_imports)]
            use super::*;

            $(#[::tokio::test(flavor = "multi_thread")]
            async fn $case() -> ::std::result::Result<(), $crate::suite::Failure> {
                $crate::suite::check(concat!(stringify!($part), "::", stringify!($case)), $fixture).await
            })*
        })*
    };
}

macro_rules! list {
    ([] $($part:ident { $($case:ident)* })*) => {
        const CASES: &[Case] = &[
            $($(Case {
                name: concat!(stringify!($part), "::", stringify!($case)),
                body: |subject| Box::pin($part::$case(subject)),
            },)*)*
        ];
    };
}

/// The list of cases, for whoever makes something of each.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_suite_cases {
    ([$($then:tt)*] [$($given:tt)*]) => {
        $($then)*! { [$($given)*]
            journal {
                a_new_thread_has_nothing
                records_come_back_in_order_and_in_part
                records_come_back_byte_for_byte
                numbers_come_back_digit_for_digit
                unknown_kinds_come_back
                positions_that_are_not_there_are_left_out
                limits_and_positions_may_be_the_greatest
                one_append_may_be_large
                one_record_may_be_large
                an_append_without_records_moves_only_the_inbox
                a_conflict_writes_nothing
                a_lost_claim_writes_nothing
                ids_differ_in_case
                a_wait_for_records_ends
                a_second_handle_sees_what_was_appended
            }
            claims {
                a_claim_is_exclusive
                a_dropped_claim_is_free_at_once
                fences_ascend
                an_old_claim_can_do_nothing
                a_number_that_nobody_was_given_counts_as_lost
                a_claim_alone_makes_no_thread
                one_of_many_holds_a_claim
                two_writers_of_one_journal_write_each_record_once
                a_silent_owner_is_replaced
                an_owner_that_gives_signs_of_life_stays
            }
            inbox {
                items_come_back_as_they_were
                only_the_first_of_a_key_is_kept
                a_key_with_nul_is_refused
                positions_ascend
                what_is_journaled_is_taken_in_the_same_write
                a_thread_without_journal_has_an_inbox
                a_follower_sees_each_post_once
                one_of_many_posts_of_a_key_is_first
                a_wait_for_posts_ends
                a_wait_outlives_a_deletion
            }
            timers {
                what_is_due_is_posted_earliest_first
                timers_of_one_moment_go_by_thread_and_key
                a_timer_is_replaced_and_cancelled_by_its_key
                a_timer_whose_key_was_posted_posts_nothing
                each_timer_is_posted_once_whoever_calls
                a_timer_wakes_whoever_waits_for_posts
                a_snapshot_is_kept_and_replaced
            }
            index {
                the_index_follows_a_thread_through_its_life
                a_title_is_the_first_that_a_person_says
                a_pending_decision_has_all_that_a_decider_needs
                pending_decisions_come_in_pages_oldest_first
                a_fork_waits_for_nothing
                threads_come_in_pages_last_changed_first
                pages_are_stable_while_threads_change
                a_cursor_that_no_page_gave_is_refused
                threads_are_found_by_what_the_index_says
                unfinished_threads_come_by_their_ids
            }
            decisions {
                whatever_is_decided_settles_the_call
                approvals_of_several_and_reminders_leave_it_pending
                a_decision_that_is_handed_on_keeps_its_place
                what_an_approval_of_another_call_answers_waits_no_longer
            }
            data {
                values_are_set_replaced_and_removed
                keys_may_be_odd_and_are_listed_in_order
                a_value_with_nul_is_refused
                content_is_kept_once_for_each_thread
                content_stays_while_some_thread_keeps_it
                many_keep_the_same_content_at_once
                a_copy_is_whole_and_goes_its_own_way
                a_deleted_thread_leaves_nothing
            }
            files {
                entries_come_back_as_they_were
                entries_are_put_replaced_and_removed
                an_entry_without_its_content_is_refused_with_all_beside_it
                paths_are_listed_in_the_order_of_their_bytes
            }
            trees {
                a_tree_is_changed_and_seen_by_all
                searches_have_the_same_hits_as_in_memory
                attachments_are_kept_apart_from_the_journal
            }
            lasting {
                everything_is_there_after_a_restart
                what_was_refused_is_not_there_after_a_restart
                a_place_can_be_opened_many_times
            }
            agreement {
                any_sequence_has_the_answers_of_the_store_in_memory
            }
        }
    };
}

__store_suite_cases! { [list] [] }

async fn open(fixture: &dyn Fixture) -> Result<Arc<dyn Store>, Failure> {
    fixture.open().await.map_err(|problem| Failure::new(format!("expected the store to open, found: {problem}")))
}

/// What a case works with: a store in which nothing is kept yet.
struct Subject {
    fixture: Arc<dyn Fixture>,
    store: Arc<dyn Store>,
}

impl Subject {
    /// Another handle on the same data; the first one, where there is no other.
    async fn another(&self) -> Result<Arc<dyn Store>, Failure> {
        if self.fixture.is_shared() { open(&*self.fixture).await } else { Ok(Arc::clone(&self.store)) }
    }
}

impl Subject {
    /// The same data, opened again with no handle left of before; as it is, where there is no restart.
    async fn restarted(self) -> Result<Self, Failure> {
        if !self.fixture.is_shared() {
            return Ok(self);
        }
        let Self { fixture, store } = self;
        drop(store);
        let store = open(&*fixture).await?;
        Ok(Self { fixture, store })
    }
}

/// A claim as a store sees one that was lost: its number is no longer the last.
struct Lost {
    thread: ThreadId,
    fence: u64,
}

impl Lost {
    /// What becomes of `claim` once it is dropped and another is taken.
    fn of(claim: &dyn Claim) -> Self {
        Self { thread: claim.thread().clone(), fence: claim.fence() }
    }
}

impl Claim for Lost {
    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn fence(&self) -> u64 {
        self.fence
    }
}

/// A thread's id.
fn thread(id: &str) -> Result<ThreadId, Failure> {
    ThreadId::new(id).map_err(|error| Failure::new(error.to_string()))
}

/// So much of a value as a sentence can carry.
fn shown(value: &dyn fmt::Debug) -> String {
    let text = format!("{value:?}");
    let cut = toolwright_core::cut(&text, 400);
    if cut.len() < text.len() { format!("{cut}... ({} bytes)", text.len()) } else { text }
}

/// Fails unless the two are the same.
fn same<T: PartialEq + fmt::Debug + ?Sized>(what: &str, found: &T, expected: &T) -> Verdict {
    if found == expected {
        return Ok(());
    }
    Err(Failure::new(format!("{what}: expected {}, found {}", shown(&expected), shown(&found))))
}

/// Fails unless it holds.
fn holds(what: &str, is: bool) -> Verdict {
    if is { Ok(()) } else { Err(Failure::new(format!("expected that {what}, found that not"))) }
}

/// The error of an answer that has to be one.
fn refused<T>(what: &str, answer: Result<T, StoreError>) -> Result<StoreError, Failure> {
    match answer {
        Ok(_) => Err(Failure::new(format!("{what}: expected a refusal, found that it was done"))),
        Err(error) => Ok(error),
    }
}

/// Fails unless the claim counted as lost.
fn fenced<T>(what: &str, thread: &ThreadId, answer: Result<T, StoreError>) -> Verdict {
    same(what, &refused(what, answer)?, &StoreError::Fenced { thread: thread.clone() })
}

/// What comes of something that has to end in time.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(DEADLINE, future)
        .await
        .map_err(|_| Failure::new(format!("{what}: expected it within {DEADLINE:?}, found nothing")))
}

/// Appends records to a thread that nobody has claimed.
async fn append(store: &dyn Store, thread: &ThreadId, expected: u64, append: Append) -> Verdict {
    let claim = store.claim(thread).await?;
    Ok(store.append(&*claim, Seq(expected), append).await?)
}
