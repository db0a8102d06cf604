// Answer.java - publishes its identity on the channel that each message on demo/question names; through bccn pipe.
//   java Answer.java /run/bccnd/bus.sock
//   bccn pub demo/question demo/answer
// When the daemon restarts, bccn pipe connects and subscribes again. Java has no JSON: take Jackson or Gson in place of
// field() and text(), which read what bccn pipe writes and nothing else.
import java.io.*;
import java.util.regex.*;

public class Answer {
    /** The text or number of a field, its escapes undone; empty if there is none. */
    static String field(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": (?:\"((?:[^\"\\\\]|\\\\.)*)\"|(\\d+))").matcher(line);
        if (!found.find()) return "";
        if (found.group(1) == null) return found.group(2);
        return Pattern.compile("\\\\u(....)|\\\\(.)").matcher(found.group(1)).replaceAll(escape ->
            Matcher.quoteReplacement(escape.group(1) != null ? "" + (char) Integer.parseInt(escape.group(1), 16)
                : "bfnrt".contains(escape.group(2)) ? "" + "\b\f\n\r\t".charAt("bfnrt".indexOf(escape.group(2)))
                : escape.group(2)));
    }

    /** A text for JSON, in ASCII. */
    static String text(String plain) {
        StringBuilder quoted = new StringBuilder("\"");
        plain.chars().forEach(one -> quoted.append(String.format("\\u%04x", one)));
        return quoted.append('"').toString();
    }

    public static void main(String[] args) throws Exception {
        Process pipe = new ProcessBuilder("bccn", "--socket", args[0], "pipe", "--program", "answer")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        PrintStream send = new PrintStream(pipe.getOutputStream(), true);
        String identity = "";
        send.println("{\"op\": \"whoami\"}");
        send.println("{\"op\": \"subscribe\", \"pattern\": \"demo/question\", \"id\": \"subscribe\"}");
        for (String line; (line = pipe.inputReader().readLine()) != null; ) {
            switch (field(line, "event")) {
                case "identity" -> System.out.println("I am " + (identity = field(line, "src")));
                case "message" -> {
                    if (!field(line, "chan").equals("demo/question")) continue;
                    String chan = field(line, "payload");
                    System.out.println(field(line, "src") + " asks on " + chan);
                    send.println("{\"op\": \"publish\", \"chan\": " + text(chan) + ", \"payload\": " + text(identity) + "}");
                }
                case "refused" -> System.err.println("refused: " + field(line, "reason") + " " + field(line, "about"));
                case "gap" -> System.err.println(field(line, "lost").equals("0")
                    ? "messages may have been lost here: the daemon has crashed"
                    : field(line, "lost") + " messages were lost here: this reader is too slow");
                case "away", "back" -> System.err.println("the daemon is " + field(line, "event"));
            }
        }
        System.exit(pipe.waitFor());
    }
}
