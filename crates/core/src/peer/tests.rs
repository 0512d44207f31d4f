use super::*;

#[test]
fn idle_context_is_small() {
    let context = core::mem::size_of::<Option<Context>>();
    let paths = core::mem::size_of::<Option<crate::path::table::PathEntry>>();
    println!("context {context}, path context {paths}");
    assert!(context + paths <= 340, "{context} + {paths}");
}

#[test]
fn state_machine_draws_itself_and_refuses_wrong_moves() {
    let dot = ContextState::dot();
    assert!(dot.contains("HalfOpen -> Open [label=\"confirmed\"]"), "{dot}");
    let mut s = ContextState::Closed;
    assert_eq!(s.confirmed(), Err(ContextState::Closed));
    let mut s = ContextState::Opening;
    assert_eq!(s.confirmed(), Ok(ContextState::Opening));
    assert_eq!(s.close_begun(), Ok(ContextState::Open));
    assert_eq!(s.ended(), Ok(ContextState::Closing));
}
