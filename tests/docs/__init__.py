"""Every command that the README and docs/*.md give is run here, or says who runs it. For writers of documents:

Fences say `sh`, `yaml`, `python`, `text`, `none` (pictures and figures that nobody checks), or one of the others that
`blocks.KINDS` lists.

A `sh` block is run line by line in one terminal for each document, from its top to its end: bash on a host of its own
(`tests/docs/place.sh`), called relay01, in the folder of the repository, as root, with `bccn` and `bccnd` in the PATH,
an `eth0`, and a daemon with the configuration in `/etc/bccnd/bccnd.yaml`, which at first is `etc/bccnd.yaml`.
Every command must end with status 0. What stands behind a command, in a comment, may say more:

    bccn pub demo/hello hi              # any words
    bccn pub demo/hello hi              # => demo/hello hi        the terminal shows such a line; `...` is anything
    bccn trace 'noise'                  # exit code 1             that status, and no other
    bccn top                            # Ctrl-C ends it          runs until then; also `q ends it`
    bccn sub 'demo/' &                  #                         the next line waits until this one is at rest

A `text` block right behind a `sh` block is what the terminal shows for it, in this order; `...` as above, also as a
line of its own. A `yaml` block is read as a configuration, and must be a good one. A `python` block is run with that
Python.
A comment right before a block says what cannot be seen from it:

    <!-- file: /etc/bccnd/bccnd.yaml -->    the block is that file (from then on); the daemon is started anew with it
    <!-- prepare: COMMANDS -->              run before, for what a document takes for granted (other hosts, traffic)
    <!-- terminal: own -->                  its commands go on behind the blocks that follow, in a terminal of their own
    <!-- daemon: off -->                    the daemon is stopped, and stays so; `on` starts it anew
    <!-- ends: Ctrl-C -->                   of python: runs until then
    <!-- run: long -->                      each command may take minutes: with Spark, or to install something
    <!-- run: booted -->                    on a booted host with the package, by `make test-systemd`
    <!-- run by tests/e2e/test_x.py -->     that file runs it: each command stands in there word for word
    <!-- run by tests/e2e/test_x.py: TEXT -->   or so does TEXT
    <!-- shows: alike -->                   of the text behind: numbers and blanks may be others
    <!-- the file PATH -->                  the block is that file of the repository (docs/excerpts.py)
    <!-- not run: REASON -->                rare: there is a bound for how many (test_commands.py)

Commands in the running text, in backticks, that begin with bccn, bccnd, make, systemctl, pytest or `python -m` are
looked up: command, options, target, unit, file.
"""
