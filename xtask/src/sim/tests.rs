use super::*;

fn described(found: &Found) -> String {
    format!("seed {}: {}: {}", found.seed, found.broken.invariant, found.broken.detail)
}

#[test]
fn two_thousand_schedules_break_no_invariant() {
    let mut stats = Stats::default();
    if let Err(found) = schedules(1, 2_000, None, &mut stats) {
        panic!("{}", described(&found));
    }
    // They went where it hurts.
    assert!(stats.crashes_before > 100 && stats.crashes_after > 100 && stats.deaths > 100, "crashes");
    assert!(stats.refused > 50 && stats.reruns > 100, "takeovers");
    assert!(stats.approved > 100 && stats.edited > 50 && stats.rejected > 50, "decisions");
    assert!(stats.late > 10 && stats.again > 50 && stats.altered > 50, "decisions that change nothing");
}

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::ALL {
        let found = schedules(1, PLANTED_WITHIN, Some(bug), &mut Stats::default()).expect_err(name_of(bug));
        // The same seed finds it again.
        let table = Arc::new(Table::new());
        let again = schedule(found.seed, Some(bug), &table, &mut Stats::default()).expect_err("a seed replays");
        assert_eq!(again.broken.detail, found.broken.detail);
    }
}

#[test]
fn a_seed_is_one_journal() {
    let table = Arc::new(Table::new());
    for seed in 1..50 {
        let bytes = || {
            let journal = schedule(seed, None, &table, &mut Stats::default()).map_err(|found| described(&found)).unwrap();
            serde_json::to_string(&journal).unwrap()
        };
        assert_eq!(bytes(), bytes(), "seed {seed}");
    }
}
