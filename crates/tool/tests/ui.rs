//! What compiles, and what those read who wrote something that does not.

// rule: sdk-tools 1.2/1
// rule: sdk-tools 1.2/8
// rule: sdk-tools 1.3/1
// rule: sdk-tools 1.3/4
#[test]
fn mistakes_are_told_at_compile_time() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
