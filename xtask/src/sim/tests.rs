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
    assert!(stats.voted > 400 && stats.handed_on > 200 && stats.forbidden > 80, "decisions of several people");
    assert!(stats.reminded > 300 && stats.lapsed > 200 && stats.outside > 200, "reminders, time that is over, results from outside");
    assert!(stats.covered > 40 && stats.remembered > 100 && stats.overtaken > 10, "approvals that stand for other calls");
    assert!(stats.applied > 500 && stats.returned > 30 && stats.steered > 50 && stats.timers > 100, "input");
    assert!(stats.at_once > 1_000, "gates that answer at once");
    assert!(stats.pruned > 200 && stats.folded > 100 && stats.compacted > stats.folded, "compaction");
    assert!(stats.saved > 500 && stats.loaded > 500 && stats.passed_over > 100, "saved folds");
    assert!(stats.forks > 100 && stats.patches > 50 && stats.real > 100, "forks, and the store in memory");
    assert!(stats.jumps > 20, "clocks that jump back");
    assert!(stats.exceeded > 100 && stats.checks > 300, "budgets and checks");
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
    let mut forks = 0;
    for seed in 1..50 {
        let mut bytes = || {
            let mut stats = Stats::default();
            let journal = schedule(seed, None, &table, &mut stats).map_err(|found| described(&found)).unwrap();
            forks += stats.forks;
            serde_json::to_string(&journal).unwrap()
        };
        assert_eq!(bytes(), bytes(), "seed {seed}");
    }
    assert!(forks > 4, "the journals of forks are among them");
}

#[test]
fn of_several_seeds_the_lowest_is_told() {
    let found = |_| schedules(1, 200, Some(Bug::SteerOverAReply), &mut Stats::default()).expect_err("it is found").seed;
    let seeds: Vec<u64> = (0..4).map(found).collect();
    assert!(seeds.windows(2).all(|pair| pair[0] == pair[1]), "{seeds:?}");
}
