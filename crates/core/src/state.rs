//! A macro that declares state machines: it generates the enum, one method per event (which refuses
//! transitions that the machine does not have) and a Graphviz drawing, which a test prints.

macro_rules! state_machine {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$smeta:meta])* $state:ident ),+ $(,)? }
        $( $(#[$emeta:meta])* $event:ident : $($from:ident)|+ => $to:ident ; )+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$smeta])* $state ),+ }

        impl $name {
            /// Every state, in order of declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$state ),+ ];

            /// The state's name, for traces.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$state => stringify!($state) ),+ }
            }

            $(
                $(#[$emeta])*
                /// Returns the state that was left, or as an error the present state if it has no
                /// such transition.
                pub fn $event(&mut self) -> Result<Self, Self> {
                    match *self {
                        $( Self::$from )|+ => {
                            let from = *self;
                            *self = Self::$to;
                            Ok(from)
                        }
                        #[allow(unreachable_patterns, reason = "an event may leave every state")]
                        other => Err(other),
                    }
                }
            )+

            /// The machine as a Graphviz graph.
            pub fn dot() -> String {
                let mut s = String::from(concat!("digraph ", stringify!($name), " {\n"));
                $( s.push_str(concat!("  ", stringify!($state), ";\n")); )+
                $( $(
                    s.push_str(concat!(
                        "  ", stringify!($from), " -> ", stringify!($to),
                        " [label=\"", stringify!($event), "\"];\n"
                    ));
                )+ )+
                s.push_str("}\n");
                s
            }
        }
    };
}

pub(crate) use state_machine;
