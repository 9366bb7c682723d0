//! A closed set of names, each with a row of facts: a name without a row does not build.

/// Declares an enum and, for each of its names, one row of a table.
///
/// The enum gets `ALL`, in the order of the table, and `entry()`. Rows are constants: what stands in them is known when this is built.
#[macro_export]
macro_rules! table {
    ($(#[$meta:meta])* $name:ident of $entry:ident { $($variant:ident { $($field:ident: $value:expr),* $(,)? })* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($variant),*
        }

        impl $name {
            /// Every name, in the order of the table.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Its row.
            #[must_use]
            pub const fn entry(self) -> &'static $entry {
                match self {
                    $($name::$variant => &$entry { $($field: $value),* }),*
                }
            }
        }
    };
}
