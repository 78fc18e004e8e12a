//! Permission modes: the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use toolwright_core::policy::{Earlier, ModeVerdict, PermissionMode};

// rule: sdk-tools 16.4
#[test]
fn a_mode_decides_as_the_table_says() {
    use Earlier::{AllowedByRule, Denied, EndsRun, Nothing, WouldAsk};
    use ModeVerdict::{Ask, Deny, EndsRun as Ends, Run};
    use PermissionMode::{AcceptEdits, Default, DontAsk, Plan};
    // Columns: default; plan for a tool that reads, for another; acceptEdits for an edit, for another; dontAsk.
    let columns = [
        (Default, false, false),
        (Plan, true, false),
        (Plan, false, false),
        (AcceptEdits, false, true),
        (AcceptEdits, false, false),
        (DontAsk, false, false),
    ];
    let rows = [
        (Denied, [Deny, Deny, Deny, Deny, Deny, Deny]),
        (EndsRun, [Ends, Ends, Ends, Ends, Ends, Ends]),
        (WouldAsk, [Ask, Ask, Deny, Run, Ask, Deny]),
        (AllowedByRule, [Run, Run, Deny, Run, Run, Run]),
        (Nothing, [Run, Run, Deny, Run, Run, Run]),
    ];
    for (earlier, verdicts) in rows {
        for ((mode, read_only, edits), verdict) in columns.into_iter().zip(verdicts) {
            assert_eq!(mode.decide(earlier, read_only, edits), verdict, "{earlier:?} in {mode}");
        }
    }
}

// rule: sdk-tools 16.2
#[test]
fn a_mode_is_named_by_a_word() {
    for mode in PermissionMode::ALL {
        assert_eq!(mode.as_str().parse(), Ok(mode));
        assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
    }
    let wrong = "yolo".parse::<PermissionMode>().unwrap_err().to_string();
    assert_eq!(wrong, "`yolo` is no permission mode; use `default`, `plan`, `acceptEdits` or `dontAsk`");
}
