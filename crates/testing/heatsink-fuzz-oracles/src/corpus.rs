//! Well-formed input to start from: mutation finds what is next to it.

/// Requests, complete ones and telnet lines.
pub const REQUESTS: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$11\r\nhello\r\nyou!\r\n*1\r\n$4\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$0\r\n\r\n",
    b"*4\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
    b"*2\r\n$3\r\nGET\r\n$70\r\n0123456789012345678901234567890123456789012345678901234567890123456789\r\n",
    b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*0\r\n*-1\r\n\r\n",
    b"*5\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n1\r\n$1\r\nk\r\n$2\r\n\xff\x00\r\n",
    b"SET a b\r\n",
    b"  PING  \r\n",
    b"set \"a \\x41\\n\" 'it\\'s'\n",
    b"\r\n",
];

/// Replies of every type of both protocols.
pub const REPLIES: &[&[u8]] = &[
    b"+OK\r\n",
    b"-ERR no such key\r\n",
    b":-12\r\n",
    b":9223372036854775807\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$12\r\nhello\r\nworld\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n+x\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n#t\r\n",
    b"~2\r\n,1.5\r\n(123456789012345678901234567890\r\n",
    b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
    b"|1\r\n+ttl\r\n:3\r\n*1\r\n|1\r\n+a\r\n+b\r\n:5\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"!5\r\nERR x\r\n",
];

/// What a server says of its commands, and a request behind it, an argument a line.
pub const COMMANDS: &[&[u8]] = &[
    b"GET\na",
    b"mset\na\n1\nb\n2",
    b"EVAL\nreturn 1\n2\na\nb\nc",
    b"XREAD\nCOUNT\n2\nSTREAMS\na\nb\n0\n0",
    b"ZUNIONSTORE\nd\n2\na\nb\nWEIGHTS\n1\n2",
    b"MIGRATE\nhost\n6379\n\n0\n100\nKEYS\na\nb",
    b"CLIENT\nKILL\nID\n5",
    b"object\nENCODING\na",
    // As before Redis 7: first key, last key, step.
    b"*1\r\n*6\r\n$8\r\nJSON.GET\r\n:-2\r\n*1\r\n+readonly\r\n:1\r\n:-1\r\n:1\r\nJSON.GET\na\nb",
    b"*1\r\n*6\r\n$4\r\neval\r\n:-3\r\n*1\r\n+movablekeys\r\n:0\r\n:0\r\n:0\r\nEVAL\ns\n1\nk",
    // Since Redis 7: key specifications, in pairs …
    b"*1\r\n*10\r\n$3\r\nfoo\r\n:-2\r\n*2\r\n+write\r\n+blocking\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n\
      *1\r\n*4\r\n$12\r\nbegin_search\r\n*4\r\n$4\r\ntype\r\n$5\r\nindex\r\n$4\r\nspec\r\n\
      *2\r\n$5\r\nindex\r\n:1\r\n$9\r\nfind_keys\r\n*4\r\n$4\r\ntype\r\n$5\r\nrange\r\n\
      $4\r\nspec\r\n*6\r\n$7\r\nlastkey\r\n:-1\r\n$7\r\nkeystep\r\n:2\r\n$5\r\nlimit\r\n:0\r\n\
      *0\r\nfoo\na\n1\nb\n2",
    // … and as maps, with a keyword, a count and a subcommand.
    b"*1\r\n*10\r\n$3\r\nbar\r\n:-2\r\n~1\r\n+readonly\r\n:0\r\n:0\r\n:0\r\n~0\r\n*0\r\n\
      *1\r\n%2\r\n$12\r\nbegin_search\r\n%2\r\n$4\r\ntype\r\n$7\r\nkeyword\r\n$4\r\nspec\r\n\
      %2\r\n$7\r\nkeyword\r\n$4\r\nKEYS\r\n$9\r\nstartfrom\r\n:-2\r\n$9\r\nfind_keys\r\n\
      %2\r\n$4\r\ntype\r\n$6\r\nkeynum\r\n$4\r\nspec\r\n%3\r\n$9\r\nkeynumidx\r\n:0\r\n\
      $8\r\nfirstkey\r\n:1\r\n$7\r\nkeystep\r\n:1\r\n\
      *1\r\n*6\r\n$7\r\nbar|baz\r\n:2\r\n~0\r\n:2\r\n:2\r\n:1\r\nbar\nbaz\nKEYS\n2\na\nb",
];
