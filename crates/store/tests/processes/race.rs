//! Two processes that both try to move one thread.

use std::time::Duration;

use toolwright_core::ThreadId;

use crate::job::Log;
use crate::kill::{check_whole, interrupted, undisturbed};
use crate::stores::{self, Place};
use crate::{Orders, Told};

const RACES: u32 = 200;

fn racer(place: &Place, log: &Log) -> Told {
    let orders = Orders { role: "race", store: place.address(), thread: String::new(), log: log.clone(), pace: Duration::from_millis(25) };
    let mut child = orders.start();
    assert_eq!(child.says().as_deref(), Some("ready"));
    child
}

async fn race(place: Place) {
    let store = stores::open(&place.address()).await.unwrap();
    let logs = tempfile::tempdir().unwrap();
    let (log_a, log_b) = (Log::at(logs.path().join("a")), Log::at(logs.path().join("b")));
    undisturbed(&store, "whole").await;
    let (mut a, mut b) = (racer(&place, &log_a), racer(&place, &log_b));
    let mut won = [0u32; 2];
    for round in 0..RACES {
        let thread = format!("race-{round}");
        // The last step with calls: the race is for one rerun and one reply, long enough for both to meet.
        interrupted(&store, "whole", &thread, 5).await;
        let (before_a, before_b) = (log_a.lines().len(), log_b.lines().len());
        a.tell(&thread);
        b.tell(&thread);
        let said = [a.says().unwrap(), b.says().unwrap()];
        let winner = said.iter().position(|said| said == "done").unwrap_or_else(|| panic!("round {round}: nobody moved it: {said:?}"));
        let loser = &said[1 - winner];
        assert!(
            loser.starts_with("TOOLWRIGHT_SESSION_BUSY ") && loser.contains(&thread),
            "round {round}: the other is told by name: {said:?}"
        );
        won[winner] += 1;
        // The loser ran nothing and asked nothing.
        let ran = [log_a.lines().len() - before_a, log_b.lines().len() - before_b];
        assert_eq!(ran[1 - winner], 0, "round {round}: the loser did something: {said:?}");
        check_whole(&store, &thread).await;
        let id = ThreadId::new(thread.as_str()).unwrap();
        assert!(store.unfinished(None, 1000).await.unwrap().iter().all(|open| *open != id));
    }
    println!("{place}: {RACES} races, won {} to {}", won[0], won[1]);
}

// rule: sdk-runtime DUR-11
#[tokio::test(flavor = "multi_thread")]
async fn over_sqlite_one_of_two_processes_moves_a_thread_and_the_other_is_told() {
    race(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_postgres_one_of_two_processes_moves_a_thread_and_the_other_is_told() {
    if let Some(place) = Place::postgres() {
        race(place).await;
    }
}
